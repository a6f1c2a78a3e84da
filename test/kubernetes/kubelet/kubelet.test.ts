// lane: kubelet
// Tests plugins, called by a real kubelet.
import assert from 'node:assert/strict'
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { kubernetes } from '../../../scripts/kubernetes.ts'
import { remains } from '../../support/container-leftovers.ts'
import { type Namespace, type Row, until } from '../../support/harness.ts'
import { IMAGE } from '../../support/image.ts'
import { fileStore, inCluster, type Node, subnetEnv, UNDERLAY } from '../../support/nodes.ts'
import { reach } from '../../support/servers.ts'
import { skip } from '../../support/skip.ts'
import { type Api, startApi } from './control.ts'
import { daemonsOf } from './daemons.ts'
import { startDocker, startKubelet, tidy } from './runtime.ts'

const CONF = join(import.meta.dir, '../../../conf')
const TIMES = 20
const PODS = '/api/v1/namespaces/default/pods'
const SPEC = {
  enableServiceLinks: false,
  terminationGracePeriodSeconds: 0,
  restartPolicy: 'Never',
  dnsPolicy: 'Default',
  tolerations: [{ operator: 'Exists' }],
  // It answers with its own addresses.
  containers: [
    {
      name: 'web',
      image: IMAGE,
      imagePullPolicy: 'Never',
      command: ['nc', '-ll', '-p', '80', '-e', '/bin/busybox', 'ip', '-o', 'address', 'show', 'eth0'],
      ports: [{ hostPort: 8080, containerPort: 80 }],
    },
  ],
}

describe('kubelet 1.20 with --network-plugin=cni', function () {
  // A pod takes seconds, and more where all of the machine is busy.
  this.timeout(1_800_000)
  before(function () {
    if (!kubernetes()) skip(this, 'there is no Kubernetes (npm run test:kubelet builds it)')
  })

  it(
    `a pod with a host port, in the subnet that plumb agent has for the node: reached from outside, deleted and made again, ${TIMES} times, and nothing is left; then in conf/kubelet-1.20`,
    onNode(async ({ api, node, hub, networks }) => {
      const prefix = `${subnetEnv(node)?.['FLANNEL_SUBNET']}`.replace(/1\/24$/, '')
      assert.match(prefix, /^10\.244\.(?!1\.)\d+\.$/)
      const seen = new Set<string>()
      for (let i = 0; i < TIMES; i++) seen.add(await live(api, node, hub))
      assert.deepEqual(
        [...seen].filter((address) => !address.startsWith(prefix)),
        [],
      )
      // The next address each time: none is given again while others are free.
      assert.equal(seen.size, TIMES)
      await nothingLeft(node)
      cpSync(join(CONF, 'kubelet-1.20/10-pods.conflist'), join(networks, '00-pods.conflist'))
      // The kubelet looks into its folder every five seconds. A bridge that has another subnet's address is an admin's
      // to remove.
      let address = ''
      for (let tries = 0; tries < 10 && !address.startsWith('10.244.1.'); tries++) {
        await Bun.sleep(5000)
        await node.ns.ip('link', 'delete', 'cni0')
        address = await live(api, node, hub)
        await nothingLeft(node)
      }
      assert.match(address, /^10\.244\.1\./)
    }),
  )
})

/** Makes the pod, reaches it by its host port, and deletes it: its address. */
async function live(api: Api, { name }: Node, hub: Namespace): Promise<string> {
  await api.post(PODS, { apiVersion: 'v1', kind: 'Pod', metadata: { name: 'web' }, spec: { ...SPEC, nodeName: name } })
  const { podIP } = await until(async () => {
    // Each question is a process.
    await Bun.sleep(200)
    const status = (await api.get(`${PODS}/web`))?.['status']
    assert.equal(status.phase, 'Running', JSON.stringify(status))
    return status
  }, 120_000).catch(async (cause) => {
    const events: Row[] = (await api.get('/api/v1/namespaces/default/events'))?.['items'] ?? []
    throw new Error(`${cause.message}\n${events.map(({ reason, message }) => `${reason}: ${message}`).join('\n')}`)
  })
  assert.ok((await reach(hub, UNDERLAY.v4(1), 8080)).includes(`inet ${podIP}/`))
  await api.remove(`${PODS}/web`, { gracePeriodSeconds: 0 })
  return podIP
}

// The kubelet removes the last containers of a pod in its own time.
async function nothingLeft({ ns }: Node): Promise<void> {
  await until(async () => assert.deepEqual(await remains(ns, 'eth0'), []) === undefined, 120_000)
}

interface Lab {
  readonly api: Api
  readonly node: Node
  /** The network that the node stands on. */
  readonly hub: Namespace
  /** The kubelet's folder of networks. */
  readonly networks: string
}

/** A test on a node with plumb's agent, an API server, Docker and a kubelet. */
function onNode(work: (lab: Lab) => Promise<void>): (this: Mocha.Context) => Promise<void> {
  return inCluster(
    1,
    (cluster) =>
      fileStore(cluster, { Network: '10.244.0.0/16', SubnetMin: '10.244.8.0', Backend: { Type: 'host-gw' } }),
    async ({ nodes, hub }) => {
      // The kubelet and Docker write below /var/lib, which is in memory here.
      assert.equal(process.env['PLUMB_SANDBOX'], '1', 'This test starts a kubelet: run it with `npm run test:kubelet`')
      const node = nodes[0] as Node
      const dir = mkdtempSync('/run/kubelet-')
      const daemons = daemonsOf(node.ns, dir)
      const networks = join(node.dir, 'net.d')
      await hub.ip('address', 'add', `${UNDERLAY.v4(254)}/24`, 'dev', 'hub0')
      try {
        writeList(node, networks)
        await node.agent('--install-cni').ready(60_000)
        const made = kubernetes() as { bin: string; docker: string }
        const api = await startApi(daemons, node.ns, made.bin, dir)
        const places = {
          ...made,
          dir,
          networks,
          kubeconfig: api.kubeconfig,
          plugins: join(node.dir, 'bin'),
          name: node.name,
        }
        await startDocker(daemons, node.ns, places)
        await startKubelet(daemons, node.ns, places)
        await until(
          async () => assert.ok(isReady(await api.get(`/api/v1/nodes/${node.name}`))) === undefined,
          120_000,
        ).catch((cause) => {
          throw new Error(`the node is not ready: ${cause.message}\n${daemons.log('kubelet')}`)
        })
        await work({ api, node, hub, networks })
      } finally {
        await daemons.stop()
        await tidy(dir)
        rmSync(dir, { recursive: true, force: true })
      }
    },
  )
}

// As docs/agent.md has it for such a kubelet: the agent's own network in an older version.
function writeList(node: Node, networks: string): void {
  const { cniVersions: _, ...list } = JSON.parse(readFileSync(join(CONF, 'flannel.conflist'), 'utf8'))
  const [flannel, ...others] = list.plugins
  mkdirSync(networks)
  writeFileSync(
    join(networks, '10-flannel.conflist'),
    JSON.stringify({
      ...list,
      cniVersion: '0.4.0',
      plugins: [{ ...flannel, subnetFile: join(node.dir, 'subnet.env') }, ...others],
    }),
  )
}

function isReady(node: Row | undefined): boolean {
  return node?.['status'].conditions?.some(({ type, status }: Row) => type === 'Ready' && status === 'True') === true
}
