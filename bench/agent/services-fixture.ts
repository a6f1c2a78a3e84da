import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { inside } from '../../lib/os/netns.ts'
import { linesOf } from '../../lib/text/lines.ts'
import { LAB } from '../../tools/k8s/lab.ts'
import type { Place } from '../call.ts'
import { makePlaces, removePlaces } from '../node.ts'
import type { Bench } from '../part.ts'
import { ip } from '../tools.ts'

/** The kube-proxy that plumb is measured beside. */
export const KUBE_PROXY = join(LAB, 'bin/kube-proxy')
const NODE_SCRIPT = join(import.meta.dir, 'services-node.ts')
const [GATEWAY, SERVER] = ['10.244.0.1', '10.244.0.20']

/** A program that takes Services into the kernel, and its arguments. `dir` is a folder of its own. */
export interface Contender {
  readonly name: string
  argv(dir: string): string[]
}

/** plumb's agent, with a lease in a folder. */
export const plumb: Contender = {
  name: 'plumb',
  argv(dir) {
    mkdirSync(join(dir, 'store'))
    writeFileSync(join(dir, 'store/config'), JSON.stringify({ Network: '10.244.0.0/16', Backend: { Type: 'host-gw' } }))
    const options = {
      store: 'file',
      'file-store-dir': join(dir, 'store'),
      'node-name': 'n1',
      'subnet-file': join(dir, 'subnet.env'),
      'state-dir': join(dir, 'state'),
      socket: join(dir, 'agent.sock'),
      'status-address': 'off',
      'service-proxy': 'kubernetes',
      'kube-api-url': 'http://127.0.0.1:6443',
    }
    return [
      join(import.meta.dir, '../../dist/plumb'),
      'agent',
      ...Object.entries(options).map(([name, value]) => `--${name}=${value}`),
    ]
  },
}

/** kube-proxy in nftables mode. Like plumb's agent, it knows which addresses are the pods'. */
export const kubeProxy: Contender = {
  name: 'kube-proxy (nftables)',
  argv(dir) {
    const conf = {
      apiVersion: 'v1',
      kind: 'Config',
      clusters: [{ name: 'c', cluster: { server: 'http://127.0.0.1:6443' } }],
      users: [{ name: 'u', user: {} }],
      contexts: [{ name: 'x', context: { cluster: 'c', user: 'u' } }],
      'current-context': 'x',
    }
    writeFileSync(join(dir, 'kubeconfig'), JSON.stringify(conf))
    const sysctls = [
      '--conntrack-max-per-core=0',
      '--conntrack-tcp-timeout-established=0',
      '--conntrack-tcp-timeout-close-wait=0',
    ]
    const api = ['--kube-api-content-type=application/json', '--kube-api-qps=1000', '--kube-api-burst=1000']
    return [
      KUBE_PROXY,
      `--kubeconfig=${join(dir, 'kubeconfig')}`,
      '--hostname-override=n1',
      '--proxy-mode=nftables',
      '--cluster-cidr=10.244.0.0/16',
      ...api,
      ...sysctls,
    ]
  },
}

/** A node with an API server of the bench and a proxy that runs. */
export interface Node {
  readonly proxy: string
  readonly pid: number
  /** Two pods behind a bridge: the first is a client, the second one serves. */
  readonly pods: readonly [client: Place, server: Place]
  /** Milliseconds from now until a client on the node reaches the last Service. */
  cold(): Promise<number>
  /** Milliseconds from the event of one Service more until a client on the node reaches it. */
  more(): Promise<number>
  /** Milliseconds of so many connections to one Service, one after another. */
  connections(count: number): Promise<number[]>
  /** A Service with the second pod as its only endpoint. Gives its address when clients reach it. */
  podService(port: number): Promise<string>
  /** Ends the proxy. Gives the most memory of it, and of the largest of its tools where that is more, in MB. */
  end(): Promise<{ readonly own: number; readonly tool: number | undefined }>
  /** Removes everything. */
  close(): Promise<void>
}

let serial = 0

/** Opens a node with so many Services, each with so many endpoints, and starts the proxy. */
export async function openNode(
  bench: Bench,
  { name, argv }: Contender,
  services: number,
  endpoints: number,
): Promise<Node> {
  const dir = bench.dataDir()
  const n = ++serial
  const [node, client, server] = makePlaces([`svc${n}`, `svc${n}-client`, `svc${n}-server`]) as [Place, Place, Place]
  inside(node, () => {
    ip([
      'addr add 10.250.0.1/16 dev lo',
      'link add eth0 up type veth peer name peer',
      'link set peer up',
      'addr add 192.168.77.1/24 dev eth0',
      'route add default via 192.168.77.2',
      'link add cni0 type bridge',
      `addr add ${GATEWAY}/24 dev cni0`,
      'link set cni0 up',
    ])
    ip([
      `link add pod0 master cni0 up type veth peer name eth0 netns ${client}`,
      `link add pod1 master cni0 up type veth peer name eth0 netns ${server}`,
    ])
    writeFileSync('/proc/sys/net/ipv4/ip_forward', '1')
    writeFileSync('/proc/sys/net/bridge/bridge-nf-call-iptables', '1')
  })
  for (const [place, address] of [
    [client, '10.244.0.10'],
    [server, SERVER],
  ] as const)
    inside(place, () => ip([`addr add ${address}/24 dev eth0`, 'link set eth0 up', `route add default via ${GATEWAY}`]))
  const api = inside(node, () =>
    Bun.spawn([process.execPath, NODE_SCRIPT, String(services), String(endpoints)], {
      stdin: 'pipe',
      stdout: 'pipe',
      stderr: 'inherit',
    }),
  )
  const lines = linesOf(api.stdout)
  const next = async () => String((await lines.next()).value ?? '')
  if ((await next()) !== 'ready') throw new Error('the API server of the bench did not start')
  const [log, errors] = [join(dir, 'log'), join(dir, 'log.err')]
  const args = argv(dir)
  const proxy = inside(node, () =>
    Bun.spawn(args, {
      stdout: Bun.file(log),
      stderr: Bun.file(errors),
      env: { PATH: '/usr/sbin:/usr/bin:/sbin:/bin' },
    }),
  )
  let isEnding = false
  const broken = proxy.exited.then((status) => {
    if (!isEnding) throw new Error(`${name} ended with ${status}: ${readFileSync(errors, 'utf8').slice(-2000)}`)
    return ''
  })
  broken.catch(() => {})
  const ask = async (command: string) => {
    api.stdin.write(`${command}\n`)
    api.stdin.flush()
    return await Promise.race([next(), broken])
  }
  return {
    proxy: name,
    pid: proxy.pid,
    pods: [client, server],
    cold: async () => Number(await ask('cold')),
    more: async () => Number(await ask('more')),
    connections: async (count) => JSON.parse(await ask(`connections ${count}`)),
    podService: (port) => ask(`pod ${SERVER} ${port}`),
    async end() {
      const own = Number(/VmHWM:\s+(\d+)/.exec(readFileSync(`/proc/${proxy.pid}/status`, 'utf8'))?.[1]) / 1024
      isEnding = true
      proxy.kill()
      await proxy.exited
      const largest = (proxy.resourceUsage()?.maxRSS ?? 0) / 2 ** 20
      return { own, tool: largest > own * 1.01 ? largest : undefined }
    },
    async close() {
      isEnding = true
      proxy.kill('SIGKILL')
      api.kill('SIGKILL')
      await Promise.all([proxy.exited, api.exited])
      removePlaces([node, client, server])
    },
  }
}
