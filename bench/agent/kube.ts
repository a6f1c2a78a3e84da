import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { inside } from '../../lib/os/netns.ts'
import { flanneld } from '../../scripts/peers.ts'
import { type ApiServer, apiServer } from '../../test/support/kube-apiserver.ts'
import type { Place } from '../call.ts'
import { makePlaces } from '../node.ts'
import type { Bench } from '../part.ts'
import { ip } from '../tools.ts'
import { type Contender, foreign, type Running, type Store, startOn } from './fixture.ts'

/** A real kube-apiserver with Nodes in it, and nodes beside it whose leases are there. */
export interface KubeFixture extends Store {
  readonly api: ApiServer
  /** Makes sure that there are so many foreign Nodes, each as large as real ones. */
  grow(count: number): Promise<void>
  /** Starts an agent on a node that has nothing yet. */
  start(contender: Contender): Promise<Running>
  close(): Promise<void>
}

const PREFIX = 'flannel.alpha.coreos.com/'
const [ADDRESS, NET] = ['10.123.200.1', '10.123.200']
/** Requests under way at once while Nodes are made. */
const AT_ONCE = 16

/** Starts kube-apiserver on a bridge. The caller closes it. */
export async function openKubeFixture(bench: Bench): Promise<KubeFixture> {
  ip(['link add kube type bridge', `address add ${ADDRESS}/24 dev kube`, 'link set kube up'])
  const api = await apiServer(ADDRESS)
  const running = new Set<Running>()
  let [nodes, agents] = [0, 0]
  const names = new Map<string, string>()
  const common = (dir: string) => [
    '--kube-subnet-mgr',
    `--kubeconfig-file=${api.kubeconfig}`,
    `--net-config-path=${dir}/net-conf.json`,
    '--iface=eth0',
    `--subnet-file=${dir}/subnet.env`,
    '--ip-masq',
  ]
  const theirs = flanneld()
  const contenders: Contender[] = [
    {
      name: 'plumb',
      ours: true,
      argv: (dir) => [
        join(import.meta.dir, '../../dist/plumb'),
        'agent',
        ...common(dir),
        `--node-name=${names.get(dir)}`,
        `--state-dir=${dir}/state`,
        `--socket=${dir}/agent.sock`,
      ],
    },
    ...(theirs
      ? [{ name: `flanneld ${theirs.version}`, ours: false, argv: (dir: string) => [theirs.path, ...common(dir)] }]
      : []),
  ]
  const create = (n: number) => {
    const { subnet, ip, mac } = foreign(n)
    return api.create(`node-${n}`, [subnet], annotations(ip, mac), status(ip))
  }
  return {
    api,
    contenders,
    async grow(count) {
      const wanted = Array.from({ length: Math.max(0, count - nodes) }, (_, i) => nodes + i)
      for (let i = 0; i < wanted.length; i += AT_ONCE) await Promise.all(wanted.slice(i, i + AT_ONCE).map(create))
      nodes = Math.max(nodes, count)
    },
    join: (_prefix, _backend, n) => create(n),
    async start(contender) {
      const n = ++agents
      const [dir, name] = [bench.dataDir(), `own-${n}`]
      names.set(dir, name)
      mkdirSync(dir, { recursive: true })
      writeFileSync(join(dir, 'net-conf.json'), JSON.stringify({ Network: '10.128.0.0/9', Backend: { Type: 'vxlan' } }))
      // Every real Node has this annotation. flanneld 0.28.9 ends at a Node that has none.
      await api.create(name, [`10.128.${n}.0/24`], { 'node.alpha.kubernetes.io/ttl': '0' })
      const [node] = makePlaces([`kube${n}`]) as [Place]
      ip([`link add kube${n} master kube up type veth peer name eth0 netns kube${n}`])
      inside(node, () =>
        ip([`address add ${NET}.${100 + n}/24 dev eth0`, 'link set eth0 up', `route add default via ${ADDRESS}`]),
      )
      const made = startOn({ ...contender, env: { NODE_NAME: name } }, node, dir)
      running.add(made)
      return made
    },
    async close() {
      await Promise.all([...running].map((agent) => agent.stop()))
      await api.end()
      ip(['link delete kube'])
    },
  }
}

function annotations(ip: string, mac: string): Record<string, string> {
  const said = {
    'kube-subnet-manager': 'true',
    'backend-type': 'vxlan',
    'backend-data': `{"VNI":1,"VtepMAC":"${mac}"}`,
    'public-ip': ip,
  }
  return Object.fromEntries(Object.entries(said).map(([name, value]) => [`${PREFIX}${name}`, value]))
}

// What a kubelet says of itself: conditions, addresses and fifty images. 12 kB, as on real nodes.
function status(ip: string): object {
  const at = new Date().toISOString().replace(/\.\d+Z$/, 'Z')
  const conditions = ['MemoryPressure', 'DiskPressure', 'PIDPressure', 'Ready'].map((type) => ({
    type,
    status: type === 'Ready' ? 'True' : 'False',
    lastHeartbeatTime: at,
    lastTransitionTime: at,
    reason: `KubeletHas${type}`,
    message: `kubelet has said so of ${type}`,
  }))
  const images = Array.from({ length: 50 }, (_, n) => ({
    names: [
      `registry.example/team/image-${n}@sha256:${`${n}`.padStart(64, '0')}`,
      `registry.example/team/image-${n}:v1.${n}`,
    ],
    sizeBytes: 1e6 * (n + 1),
  }))
  return {
    addresses: [{ type: 'InternalIP', address: ip }],
    capacity: { cpu: '8', memory: '32Gi', pods: '110' },
    conditions,
    images,
    nodeInfo: {
      kernelVersion: '6.18.0',
      osImage: 'Debian',
      containerRuntimeVersion: 'containerd://2.4.2',
      kubeletVersion: 'v1.37.2',
      architecture: 'amd64',
      bootID: '',
      kubeProxyVersion: '',
      machineID: '',
      operatingSystem: 'linux',
      systemUUID: '',
    },
  }
}
