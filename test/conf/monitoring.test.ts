// lane: long
// Tests conf/monitoring with agent/telemetry/metrics.ts: promtool, real agents, and a Prometheus that scrapes them.
import assert from 'node:assert/strict'
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { execa } from 'execa'
import { parse } from 'yaml'
import { CHECKS } from '../../agent/doctor/checks/index.ts'
import { PROMETHEUS } from '../../scripts/prometheus.ts'
import { exposition } from '../support/exposition.ts'
import { until } from '../support/harness.ts'
import {
  callFailing,
  FOLDER,
  metricsOf,
  monitored,
  NETWORK,
  PROGRAM,
  rules,
  startPrometheus,
} from '../support/monitoring.ts'
import { fileStore, inCluster, type Node } from '../support/nodes.ts'
import { skip } from '../support/skip.ts'

const ROOT = join(import.meta.dir, '../..')
const PROMTOOL = join(PROMETHEUS, 'usr/bin/promtool')
/** What this node has not: a finding of the doctor, and WireGuard (test/agent/backend/wireguard-agent.test.ts). */
const ELSEWHERE = ['plumb_doctor_findings', 'plumb_wireguard_handshake_age_seconds']

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

  it('promtool takes the rules, and each alert fires and clears with its series', async function () {
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
    'every metric of rules and dashboards is one of a real agent; a Prometheus has data for every query, and a fault fires its alert, which clears',
    inCluster(
      2,
      (cluster) => fileStore(cluster, NETWORK),
      async ({ nodes, hub, dir }, test) => {
        test.timeout(120_000)
        const [one, two] = nodes as [Node, Node]
        const agents = await monitored(one, two, dir)
        const first = await agents.ready()
        await callFailing(one, two)
        const texts = await Promise.all([one, two].map(metricsOf))
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
        const prometheus = await startPrometheus(hub, dir, 2)
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

// What Grafana puts in for its variables.
function filled(expr: string): string {
  return expr.replaceAll('$__rate_interval', '30s').replaceAll(/\$(job|instance)/g, '.*')
}
