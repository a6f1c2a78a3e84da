import assert from 'node:assert/strict'
import { mkdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { type Answer, plugin, until } from './harness.ts'
import { works } from './host-ports.ts'
import type { Agent, Cluster, Node } from './nodes.ts'
import { fileStore } from './nodes.ts'
import { SILENT_MS } from './patience.ts'
import { type Answering, startPod } from './policy-fixture.ts'

/** The processes of pods. A test that fails does not come to their end. */
const running = new Set<Answering>()
after(() => {
  for (const one of running) one.kill()
})

/** A pod that a real ADD has attached. */
export interface AttachedPod {
  readonly name: string
  readonly node: Node
  readonly ns: Node['ns']
  /** Its addresses, IPv4 first. */
  readonly ips: readonly string[]
  readonly process: Answering
  del(): Promise<Answer>
}

/**
 * Options of an agent with everything on: policy, Services and the fast path. Manifests stand in `dir`/manifests. Without
 * `pods` each agent has to be told.
 */
export function everythingOn(cluster: Cluster, conf: object, pods?: 'bridge' | 'routed'): string[] {
  return [
    ...fileStore(cluster, conf),
    '--install-cni',
    ...(pods ? [`--pods=${pods}`] : []),
    '--status-address=off',
    '--service-health-address=off',
    `--service-proxy=${join(cluster.dir, 'manifests')}`,
    `--network-policy=${join(cluster.dir, 'manifests')}`,
  ]
}

/** Writes a file of manifests in one piece. */
export function manifest(dir: string, file: string, ...objects: readonly object[]): void {
  mkdirSync(join(dir, 'manifests'), { recursive: true })
  const path = join(dir, 'manifests', file)
  writeFileSync(`${path}.new`, objects.map((object) => JSON.stringify(object)).join('\n---\n'))
  renameSync(`${path}.new`, path)
}

/** The manifest of a pod of namespace x. */
export function podManifest(name: string, nodeName: string, ips: readonly string[] = []): object {
  return {
    kind: 'Pod',
    metadata: { namespace: 'x', name, labels: { app: name } },
    spec: { nodeName, containers: [] },
    status: { phase: 'Running', podIPs: ips.map((ip) => ({ ip })) },
  }
}

/** Attaches a pod to a node by the network that its agent installed. The pod's namespace had another use: it is emptied. */
export async function attach(node: Node, pod: Node, runtimeConfig: object = {}): Promise<AttachedPod> {
  const { ips, del } = await add(node, pod, runtimeConfig)
  const process = await bare(pod)
  return {
    name: pod.name,
    node,
    ns: pod.ns,
    ips,
    process,
    async del() {
      process.kill()
      return del()
    },
  }
}

/** The same without a process in the pod. */
export async function add(
  node: Node,
  pod: Node,
  runtimeConfig: object = {},
): Promise<{ readonly ips: readonly string[]; del(): Promise<Answer> }> {
  await pod.ns.exec(['ip', 'link', 'del', 'eth0'])
  const call = (command: 'ADD' | 'DEL') => {
    const list = JSON.parse(readFileSync(join(node.dir, 'net.d/10-flannel.conflist'), 'utf8'))
    const [first] = list.plugins
    const conf = {
      ...first,
      name: list.name,
      cniVersion: list.cniVersion,
      dataDir: join(node.dir, 'flannel'),
      ipam: { dataDir: join(node.dir, 'networks') },
      runtimeConfig,
    }
    const [bin, containerId] = [join(node.dir, 'bin'), `fast-${pod.name}-${globalThis.process.pid}`]
    const args = `IgnoreUnknown=1;K8S_POD_NAMESPACE=x;K8S_POD_NAME=${pod.name};K8S_POD_INFRA_CONTAINER_ID=${containerId}`
    return plugin(
      first.type,
      { command, conf, containerId, netns: pod.ns, path: bin, file: join(bin, first.type), args },
      node.ns,
    )
  }
  // Code 11 means that the runtime should try again: a tool was too slow on this machine.
  const { result } = await until(async () => {
    const answer = await call('ADD')
    if (answer.status !== 0 && answer.error.code === 11) await call('DEL')
    else return works(answer)
    throw new Error(answer.error.msg)
  }, 30_000)
  const ips = result['ips'].map(({ address }: { address: string }) => address.split('/')[0])
  return { ips, del: () => call('DEL') }
}

/** The process of a pod in a namespace, which may be no pod: then it is a client from outside. */
export async function bare({ ns }: Node): Promise<Answering> {
  const one = startPod(ns.path.slice(ns.path.lastIndexOf('/') + 1))
  running.add(one)
  await one.ready()
  return one
}

/** A Service of namespace x at an address, and its only endpoint. */
export function serviceOf(vip: string, port: number, endpoint: string, nodeName: string): object[] {
  const name = 's'
  return [
    { kind: 'Service', metadata: { namespace: 'x', name }, spec: { clusterIPs: [vip], ports: [{ port }] } },
    {
      kind: 'EndpointSlice',
      metadata: { namespace: 'x', name, labels: { 'kubernetes.io/service-name': name } },
      addressType: 'IPv4',
      ports: [{ name: '', port }],
      endpoints: [{ addresses: [endpoint], nodeName, conditions: { ready: true } }],
    },
  ]
}

/** A NetworkPolicy of namespace x: a pod may be reached from another one alone. */
export function onlyFrom(pod: string, from: string): object {
  return {
    kind: 'NetworkPolicy',
    metadata: { namespace: 'x', name: 'only' },
    spec: {
      podSelector: { matchLabels: { app: pod } },
      ingress: [{ from: [{ podSelector: { matchLabels: { app: from } } }] }],
    },
  }
}

/** The connections that these addresses have begun and that are offloaded on a node, as the tool conntrack prints them. */
export async function offloaded({ ns }: Node, sources: readonly string[]): Promise<string[]> {
  const lists = await Promise.all(
    sources.map((source) => ns.exec(['conntrack', '-L', '-f', source.includes(':') ? 'ipv6' : 'ipv4', '-s', source])),
  )
  return lists.flatMap(({ stdout }) => stdout.split('\n')).filter((line) => line.includes('[OFFLOAD]'))
}

/** Waits until the fast path of an agent has so many pods. */
export async function onFastPath(
  agent: Agent,
  wanted: { readonly pods: number; readonly slowPods: number },
): Promise<void> {
  await until(async () => {
    const { state, pods, slowPods } = (await agent.status())?.fastPath ?? {}
    assert.deepEqual({ state, pods, slowPods }, { state: 'on', ...wanted }, agent.log())
    return true
  }, 60_000)
}

/** What a flow of a pod has received so far. */
export async function received({ process }: AttachedPod, name: string): Promise<number> {
  const { flows } = (await process.tell()) as unknown as { flows: Record<string, { received: number }> }
  return flows[name]?.received ?? 0
}

/** Waits until a flow has received some more. */
export async function grows(pod: AttachedPod, name: string): Promise<void> {
  const before = await received(pod, name)
  await until(async () => (await received(pod, name)) > before + 20, 60_000)
}

/** Waits until a flow receives nothing for a while. */
export async function stays(pod: AttachedPod, name: string): Promise<void> {
  await until(async () => {
    const before = await received(pod, name)
    await Bun.sleep(SILENT_MS)
    return (await received(pod, name)) === before
  }, 60_000)
}
