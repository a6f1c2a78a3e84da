// needs: prometheus
// Agents that a Prometheus scrapes, and what conf/monitoring says of them.
import assert from 'node:assert/strict'
import { cpSync, mkdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { execa } from 'execa'
import { parse } from 'yaml'
import { PROMETHEUS } from '../../scripts/prometheus.ts'
import { type Namespace, plugin, until } from './harness.ts'
import { kubeServer } from './kube-server.ts'
import { type Agent, type Node, UNDERLAY } from './nodes.ts'

export const FOLDER = join(import.meta.dir, '../../conf/monitoring')
export const PROGRAM = join(PROMETHEUS, 'usr/bin/prometheus')
/** Small subnets, which a few pods fill. */
export const NETWORK = { Network: '10.64.0.0/12', SubnetLen: 28, Backend: { Type: 'vxlan' } }
const PORT = 9469
const API = { here: '172.31.0.1', node: '172.31.0.2' }
const QUIET = { stdin: 'ignore', stdout: 'ignore', stderr: 'ignore' } as const

interface Rule {
  readonly alert: string
  readonly expr: string
  readonly labels: Readonly<Record<string, string>>
  readonly annotations: Readonly<Record<string, string>>
}

/** The alerts. */
export const rules = (
  parse(readFileSync(join(FOLDER, 'alerts.yaml'), 'utf8')) as { groups: { rules: Rule[] }[] }
).groups.flatMap((group) => group.rules)

/**
 * Starts two agents. The first takes its objects from an API server, the other one from the folder `manifests`. Both
 * speak BGP with each other.
 */
export async function monitored(one: Node, two: Node, dir: string) {
  // That of an earlier test goes only when the kernel has removed its namespace.
  await execa('ip', ['link', 'delete', 'api0'], { reject: false })
  await execa('ip', ['link', 'add', 'name', 'api0', 'type', 'veth', 'peer', 'name', 'api1', 'netns', one.ns.path])
  await execa('ip', ['addr', 'add', `${API.here}/24`, 'dev', 'api0'])
  await execa('ip', ['link', 'set', 'api0', 'up'])
  await one.ns.ip('addr', 'add', `${API.node}/24`, 'dev', 'api1')
  await one.ns.ip('link', 'set', 'api1', 'up')
  const api = await kubeServer(API.here)
  const manifests = join(dir, 'manifests')
  mkdirSync(manifests)
  const metadata = { namespace: 'x', name: 'a', labels: { app: 'a' } }
  writeFileSync(
    join(manifests, 'all.yaml'),
    [
      {
        kind: 'Pod',
        metadata,
        spec: { nodeName: two.name, containers: [] },
        status: { phase: 'Running', podIPs: [{ ip: '10.64.9.2' }] },
      },
      { kind: 'NetworkPolicy', metadata, spec: { podSelector: {} } },
    ]
      .map((object) => JSON.stringify(object))
      .join('\n---\n'),
  )
  const bgp = join(dir, 'bgp.yaml')
  writeFileSync(bgp, 'asn: 64512\n')
  const usual = (node: Node) => [
    `--status-address=${UNDERLAY.v4(node.n)}:${PORT}`,
    '--probe-interval=1',
    `--bgp-config=${bgp}`,
    '--service-health-address=off',
  ]
  const objects = ['--network-policy=kubernetes', '--service-proxy=kubernetes', `--kubeconfig-file=${api.kubeconfig}`]
  const begin = () => one.agent(...usual(one), ...objects)
  const agents = [begin(), two.agent(...usual(two), `--network-policy=${manifests}`, `--service-proxy=${manifests}`)]
  return {
    async ready() {
      await Promise.all(agents.map((agent) => agent.ready(40_000)))
      const isEstablished = async (agent: (typeof agents)[0]) =>
        (await agent.status())?.bgp?.sessions.some(({ state }) => state === 'Established')
      await until(async () => (await Promise.all(agents.map(isEstablished))).every(Boolean), 40_000)
      await until(async () => {
        const seen = await Promise.all(agents.map((agent) => agent.status()))
        return seen.every((status) => status?.peers.every(({ probe }) => probe?.state === 'answers'))
      }, 30_000)
      return agents[0] as (typeof agents)[0]
    },
    again: begin,
    async stop() {
      for (const agent of agents) await agent.stop('SIGKILL')
    },
    second: agents[1] as Agent,
    api,
    manifests,
  }
}

/** The metrics of a node's agent. */
export async function metricsOf({ ns, n }: Pick<Node, 'ns' | 'n'>): Promise<string> {
  const { status, stdout, stderr } = await ns.exec([
    'curl',
    '-sS',
    '--fail',
    `http://${UNDERLAY.v4(n)}:${PORT}/metrics`,
  ])
  assert.equal(status, 0, stderr)
  return stdout
}

/**
 * Starts a Prometheus on the hub with the rules of conf/monitoring, which scrapes the agents each second. Nobody waits for
 * the times of the rules: an alert fires at once, and a window of ten minutes has ten seconds.
 */
export async function startPrometheus(hub: Namespace, dir: string, count: number) {
  await hub.ip('addr', 'add', `${UNDERLAY.v4(200)}/24`, 'dev', 'hub0')
  await hub.ip('link', 'set', 'lo', 'up')
  const home = join(dir, 'prometheus')
  mkdirSync(home)
  cpSync(join(FOLDER, 'alerts.yaml'), join(home, 'alerts.yaml'))
  const text = readFileSync(join(home, 'alerts.yaml'), 'utf8')
    .replace(/for: \w+$/gm, 'for: 0s')
    .replace(/\[(\d+)m\]/g, '[$1s]')
  writeFileSync(join(home, 'alerts.yaml'), text)
  const targets = Array.from({ length: count }, (_, i) => i + 1)
    .map((n) => `'${UNDERLAY.v4(n)}:${PORT}'`)
    .join(', ')
  writeFileSync(
    join(home, 'prometheus.yaml'),
    `global: { scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s }
rule_files: [alerts.yaml]
scrape_configs: [{ job_name: plumb, static_configs: [{ targets: [${targets}] }] }]
`,
  )
  const argv = [
    `--config.file=${home}/prometheus.yaml`,
    `--storage.tsdb.path=${home}/data`,
    '--web.listen-address=127.0.0.1:9090',
  ]
  const child = Bun.spawn(['nsenter', `--net=${hub.path}`, PROGRAM, ...argv], QUIET)
  const get = async (path: string, ...form: string[]) => {
    const data = form.flatMap((one) => ['--data-urlencode', one])
    const { status, stdout } = await hub.exec(['curl', '-sS', '-G', `http://127.0.0.1:9090${path}`, ...data])
    if (status !== 0) return undefined
    return JSON.parse(stdout) as {
      status: string
      error?: string
      data: { result: { value: [number, string] }[]; alerts: { state: string; labels: Record<string, string> }[] }
    }
  }
  await until(async () => (await get('/api/v1/query', 'query=1'))?.status === 'success', 30_000)
  return {
    /** The values of a query. */
    async ask(query: string): Promise<string[]> {
      const answer = await get('/api/v1/query', `query=${query}`)
      assert.equal(answer?.status, 'success', `${query}: ${answer?.error}`)
      return answer?.data.result.map(({ value }) => value[1]) ?? []
    },
    /** The names of the alerts that fire. */
    async alerts(): Promise<string[]> {
      const all = (await get('/api/v1/alerts'))?.data.alerts ?? []
      return all.filter(({ state }) => state === 'firing').map(({ labels }) => labels['alertname'] ?? '')
    },
    stop: () => child.kill('SIGKILL'),
  }
}

/** Makes a call of a plugin on the node that fails. Plugins tell the agent of it at /run/plumb. */
export async function callFailing(node: Node, other: Node): Promise<void> {
  const { ns, dir } = node
  mkdirSync('/run/plumb', { recursive: true })
  symlinkSync(join(dir, 'calls.sock'), '/run/plumb/calls.sock')
  const conf = { cniVersion: '1.0.0', name: 'x', type: 'bridge', ipam: { type: 'static' } }
  const { status } = await plugin('bridge', { command: 'ADD', conf, netns: other.ns }, ns)
  assert.equal(status, 1)
  await until(async () => (await metricsOf(node)).includes('plumb_cni_errors_total{'), 10_000)
}

/** A fault that somebody makes, and its end. Nothing for one that ends by itself. */
export interface Fault {
  /** The alert that fires. */
  readonly alert: string
  readonly make: () => unknown
  readonly mend?: () => unknown
}

const LATE = 120_000

/** Makes faults together, waits until each alert has fired, mends them, and waits until no alert is left. */
export async function fireAndClear(
  { alerts }: Pick<Awaited<ReturnType<typeof startPrometheus>>, 'alerts'>,
  faults: readonly Fault[],
): Promise<void> {
  const fired = new Set<string>()
  const missing = () => faults.map(({ alert }) => alert).filter((name) => !fired.has(name))
  const look = async () => {
    for (const name of await alerts()) fired.add(name)
    return missing().length === 0
  }
  try {
    for (const { make } of faults) {
      await make()
      await look()
    }
    await until(look, LATE).catch(() => assert.deepEqual(missing(), []))
  } finally {
    for (const { mend } of faults) await mend?.()
  }
  await until(async () => (await alerts()).length === 0, LATE).catch(async () => assert.deepEqual(await alerts(), []))
}

/** Adds rules of nft to a node. */
export async function nft({ ns }: Pick<Node, 'ns'>, text: string): Promise<void> {
  const { status, stderr } = await ns.exec(['nft', text])
  assert.equal(status, 0, stderr)
}

/** A fault that a rule of nft for arriving packets makes. */
export function filtered(alert: string, node: Node, rule: string): Fault {
  const chain = 'add chain inet fault in { type filter hook input priority -400; }'
  return {
    alert,
    make: () => nft(node, `add table inet fault; ${chain}; add rule inet fault in ${rule}`),
    mend: () => nft(node, 'delete table inet fault'),
  }
}
