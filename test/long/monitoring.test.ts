// Tests conf/monitoring with agent/health/metrics.ts: promtool, real agents, and a Prometheus that scrapes them.
import assert from 'node:assert/strict'
import { cpSync, existsSync, mkdirSync, readdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { execa } from 'execa'
import { parse } from 'yaml'
import { CHECKS } from '../../agent/doctor/checks/index.ts'
import { PROMETHEUS } from '../../scripts/prometheus.ts'
import { exposition } from '../support/exposition.ts'
import { type Namespace, plugin, until } from '../support/harness.ts'
import { kubeServer } from '../support/kube-server.ts'
import { fileStore, inCluster, type Node, UNDERLAY } from '../support/nodes.ts'
import { skip } from '../support/skip.ts'

const ROOT = join(import.meta.dir, '../..')
const FOLDER = join(ROOT, 'conf/monitoring')
const [PROMTOOL, PROGRAM] = [join(PROMETHEUS, 'usr/bin/promtool'), join(PROMETHEUS, 'usr/bin/prometheus')]
const CONF = { Network: '10.64.0.0/12', Backend: { Type: 'vxlan' } }
const PORT = 9469
const API = { here: '172.31.0.1', node: '172.31.0.2' }
/** What this node has not: a finding of the doctor, and WireGuard (test/vm/agent-wireguard.test.ts). */
const ELSEWHERE = ['plumb_doctor_findings', 'plumb_wireguard_handshake_age_seconds']
const QUIET = { stdin: 'ignore', stdout: 'ignore', stderr: 'ignore' } as const

interface Rule {
  readonly alert: string
  readonly expr: string
  readonly labels: Readonly<Record<string, string>>
  readonly annotations: Readonly<Record<string, string>>
}
interface Dashboard {
  readonly uid: string
  readonly panels: readonly {
    readonly title: string
    readonly datasource: { readonly uid: string }
    readonly targets: readonly { readonly expr: string }[]
  }[]
  readonly templating: {
    readonly list: readonly { readonly name: string; readonly query: string | { query: string } }[]
  }
}

const rules = (
  parse(readFileSync(join(FOLDER, 'alerts.yaml'), 'utf8')) as { groups: { rules: Rule[] }[] }
).groups.flatMap((group) => group.rules)
const dashboards = readdirSync(join(FOLDER, 'dashboards')).map((name) => ({
  name,
  dashboard: JSON.parse(readFileSync(join(FOLDER, 'dashboards', name), 'utf8')) as Dashboard,
}))
/** All queries, by where they stand. */
const queries = [
  ...rules.map(({ alert, expr }) => ({ at: alert, expr })),
  ...dashboards.flatMap(({ name, dashboard }) =>
    dashboard.panels.flatMap(({ title, targets }) => targets.map(({ expr }) => ({ at: `${name}: ${title}`, expr }))),
  ),
]

describe('conf/monitoring', () => {
  it('each alert has a severity, and a runbook that is there', () => {
    const codes: readonly string[] = CHECKS.map(({ code }) => code)
    for (const { alert, labels, annotations } of rules) {
      const { summary, description, runbook = '' } = annotations
      assert.ok(/^(critical|warning)$/.test(labels['severity'] ?? '') && summary && description, alert)
      const [, code] = /^plumb doctor (DR\d+)$/.exec(runbook) ?? []
      const [, page = '', place = ''] = /^(docs\/[\w.-]+)(?:#([\w-]+))?$/.exec(runbook) ?? []
      if (code !== undefined) assert.ok(codes.includes(code), `${alert}: ${runbook}`)
      else if (page !== '') {
        const headings = [...readFileSync(join(ROOT, page), 'utf8').matchAll(/^#+ (.*)$/gm)].map(([, text = '']) =>
          text
            .toLowerCase()
            .replace(/[^\w -]/g, '')
            .replaceAll(' ', '-'),
        )
        assert.ok(place === '' || headings.includes(place), `${alert}: ${runbook}`)
      } else assert.match(runbook, /^plumb doctor( \{\{ \$labels\.code \}\})?$/, alert)
    }
  })

  it('docs/status.md has each alert', () => {
    const page = readFileSync(join(ROOT, 'docs/status.md'), 'utf8')
    assert.deepEqual(
      [...page.matchAll(/^\| `(Plumb\w+)`/gm)].map(([, name]) => name),
      rules.map(({ alert }) => alert),
    )
  })

  it('dashboards name no data source, and each has its own id', () => {
    assert.equal(new Set(dashboards.map(({ dashboard }) => dashboard.uid)).size, dashboards.length)
    for (const { name, dashboard } of dashboards) {
      assert.equal(dashboard.templating.list[0]?.name, 'datasource', name)
      const uids = JSON.stringify(dashboard).match(/"datasource":\{.*?"\}/g) ?? []
      assert.ok(uids.length > 0)
      for (const one of uids) assert.match(one, /"uid":"\$\{datasource\}"/, name)
    }
  })

  it('[DG14] promtool takes the rules, and each alert fires and clears with its series', async function () {
    if (!existsSync(PROMTOOL)) skip(this, `Prometheus was not unpacked in ${PROMETHEUS}`)
    const promtool = (...args: string[]) => execa(PROMTOOL, args, { cwd: FOLDER, all: true, reject: false })
    for (const args of [
      ['check', 'rules', 'alerts.yaml'],
      ['test', 'rules', 'alerts.test.yaml'],
    ]) {
      const { exitCode, all } = await promtool(...args)
      assert.equal(exitCode, 0, all)
    }
    const { tests } = parse(readFileSync(join(FOLDER, 'alerts.test.yaml'), 'utf8')) as {
      tests: { alert_rule_test: { alertname: string; exp_alerts: unknown[] }[] }[]
    }
    const cases = tests.flatMap((one) => one.alert_rule_test)
    for (const { alert } of rules) {
      const fires = cases.filter(({ alertname }) => alertname === alert).map(({ exp_alerts }) => exp_alerts.length > 0)
      assert.ok(fires.includes(true) && fires.at(-1) === false, `${alert}: ${fires}`)
    }
  })

  it(
    '[DG14] every metric of rules and dashboards is one of a real agent; a Prometheus has data for every query, and a fault fires its alert, which clears',
    inCluster(
      2,
      (cluster) => fileStore(cluster, CONF),
      async ({ nodes, hub, dir }, test) => {
        test.timeout(120_000)
        const [one, two] = nodes as [Node, Node]
        const agents = await agentsOf(one, two, dir)
        const first = await agents.ready()
        await called(one, two)
        const texts = await Promise.all([one, two].map(({ ns, n }) => metricsOf(ns, UNDERLAY.v4(n))))
        const there = new Set(
          texts.flatMap((text) =>
            [...exposition(text).values()].flatMap(({ samples }) => samples.map(({ name }) => name)),
          ),
        )
        // A histogram has no sample of its own name, and findings only what is found.
        const missing = queries.flatMap(({ at, expr }) =>
          (expr.match(/\b(?:plumb|process)_\w+/g) ?? [])
            .filter((name) => !there.has(name) && !ELSEWHERE.includes(name))
            .map((name) => `${at}: ${name}`),
        )
        assert.deepEqual(missing, [])

        if (!existsSync(PROGRAM)) skip(test, `Prometheus was not unpacked in ${PROMETHEUS}`)
        await hub.ip('addr', 'add', `${UNDERLAY.v4(200)}/24`, 'dev', 'hub0')
        await hub.ip('link', 'set', 'lo', 'up')
        const prometheus = await startPrometheus(hub, dir)
        try {
          const { ask, alerts } = prometheus
          await until(async () => (await ask('count(plumb_ready == 1)'))[0] === '2', 30_000)
          // Two scrapes make a rate.
          await until(
            async () => (await ask('count_over_time(plumb_ready[1m])')).every((count) => Number(count) > 3),
            30_000,
          )
          const silent: string[] = []
          for (const { name, dashboard } of dashboards)
            for (const { title, targets } of dashboard.panels)
              for (const { expr } of targets)
                if ((await ask(filled(expr))).length === 0 && !ELSEWHERE.some((one) => expr.startsWith(one)))
                  silent.push(`${name}: ${title}: ${expr}`)
          assert.deepEqual(silent, [])
          const calm = await alerts()
          assert.ok(!calm.includes('PlumbPeerSilent') && !calm.includes('PlumbAgentDown'), `${calm}`)

          // The tunnels are cut, and the agents still answer.
          const filter =
            'add table inet cut; add chain inet cut in { type filter hook input priority -400; }; add rule inet cut in udp dport 8472 drop'
          await two.ns.exec(['nft', filter])
          await until(async () => (await alerts()).includes('PlumbPeerSilent'), 40_000)
          await first.stop('SIGKILL')
          await until(async () => (await alerts()).includes('PlumbAgentDown'), 20_000)
          await two.ns.exec(['nft', 'delete', 'table', 'inet', 'cut'])
          const again = agents.again()
          await again.ready(30_000)
          await until(async () => {
            const firing = await alerts()
            return !firing.includes('PlumbPeerSilent') && !firing.includes('PlumbAgentDown')
          }, 40_000)
        } finally {
          prometheus.stop()
        }
      },
    ),
  )
})

// One agent takes its objects from an API server, the other one from a folder. Both speak BGP with each other.
async function agentsOf(one: Node, two: Node, dir: string) {
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
  }
}

async function metricsOf(ns: Namespace, address: string): Promise<string> {
  const { status, stdout, stderr } = await ns.exec(['curl', '-sS', '--fail', `http://${address}:${PORT}/metrics`])
  assert.equal(status, 0, stderr)
  return stdout
}

// The rules of conf/monitoring, except that nobody waits for their time.
async function startPrometheus(hub: Namespace, dir: string) {
  const home = join(dir, 'prometheus')
  mkdirSync(home)
  cpSync(join(FOLDER, 'alerts.yaml'), join(home, 'alerts.yaml'))
  const text = readFileSync(join(home, 'alerts.yaml'), 'utf8').replace(/for: \w+$/gm, 'for: 0s')
  writeFileSync(join(home, 'alerts.yaml'), text)
  const targets = [1, 2].map((n) => `'${UNDERLAY.v4(n)}:${PORT}'`).join(', ')
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

// What Grafana puts in for its variables.
function filled(expr: string): string {
  return expr.replaceAll('$__rate_interval', '30s').replaceAll(/\$(job|instance)/g, '.*')
}

// A call of a plugin on the node that fails. Plugins tell the agent of it at this place.
async function called({ ns, n, dir }: Node, other: Node): Promise<void> {
  mkdirSync('/run/plumb', { recursive: true })
  symlinkSync(join(dir, 'calls.sock'), '/run/plumb/calls.sock')
  const conf = { cniVersion: '1.0.0', name: 'x', type: 'bridge', ipam: { type: 'static' } }
  const { status } = await plugin('bridge', { command: 'ADD', conf, netns: other.ns }, ns)
  assert.equal(status, 1)
  await until(async () => (await metricsOf(ns, UNDERLAY.v4(n))).includes('plumb_cni_errors_total{'), 10_000)
}
