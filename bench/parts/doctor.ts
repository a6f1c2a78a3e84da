import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { AGENT_CHECKS, examine } from '../../agent/doctor/doctor.ts'
import { readCounters } from '../../agent/doctor/facts/counters.ts'
import { listsReader } from '../../agent/doctor/facts/lists.ts'
import { factsOfAgent } from '../../agent/doctor/facts/of-agent.ts'
import { podsOf } from '../../agent/doctor/facts/pods.ts'
import { readRuleset } from '../../agent/doctor/facts/ruleset.ts'
import type { Status } from '../../agent/state/status.ts'
import { entries } from '../../lib/journal/journal.ts'
import { run } from '../../lib/os/exec.ts'
import { inside } from '../../lib/os/netns.ts'
import { most } from '../agent/cold.ts'
import { type Contender, openFixture, type Running } from '../agent/fixture.ts'
import { call } from '../call.ts'
import { makePlaces } from '../node.ts'
import { median } from '../paired.ts'
import type { Bench } from '../part.ts'
import { short, type Table } from '../report.ts'

const [PEERS, PODS, LOOKS] = [1000, 250, 50]
const READY_MS = 120_000
const LOOK_MS = 2
/** How often the agent makes its checks, in seconds, and while they find something. */
const [RESTING_S, BUSY_S] = [16, 4]

/** What the doctor takes on a full node, and what its checks in the agent take. */
export async function doctor(bench: Bench): Promise<Table> {
  const fixture = await openFixture(bench)
  try {
    const prefix = await fixture.populate({ backend: 'vxlan', leases: PEERS })
    const agent = await fixture.start(fixture.contenders[0] as Contender, prefix)
    if ((await agent.reached(PEERS, READY_MS)) === undefined) throw new Error('the agent has not reached its peers')
    attach(bench, agent)
    const times = bench.times(10)
    const asked = []
    for (let i = 0; i < times; i++) asked.push(await ask(agent))
    const [ms, mb] = [median(asked.map((one) => one.ms)), Math.max(...asked.map((one) => one.mb))]
    const lookMs = await looks(agent)
    const share = (seconds: number) => lookMs / seconds / 10
    const bars = [
      most('≤ 3 s', ms / 1000, 3, 's'),
      most('≤ 60 MB', mb, 60, 'MB'),
      most('≤ 0.1 % of a core', share(RESTING_S), 0.1, '%'),
    ]
    const [inTime, inMemory, atRest] = bars.map(({ text }) => text) as [string, string, string]
    return {
      title: `plumb doctor with ${PODS} pods and ${PEERS.toLocaleString('en')} peers`,
      method: `A node with an agent, real attachments of bridge, and leases of peers that do not exist. \`plumb doctor\` by the clock, median; the most memory of its process. The checks of the agent: CPU of one look, mean of ${LOOKS}; the agent looks every ${RESTING_S} s, and every ${BUSY_S} s while it finds something. No process is started for it.`,
      head: ['what', 'n', 'figure', 'bar'],
      rows: [
        ['plumb doctor, s', `${times}`, short(ms / 1000), inTime],
        ['its memory, MB', `${times}`, short(mb), inMemory],
        ['one look of the agent, ms', `${LOOKS}`, short(lookMs), ''],
        ['% of a core at rest', '', short(share(RESTING_S)), atRest],
        ['% of a core with a finding', '', short(share(BUSY_S)), ''],
      ],
      bars,
    }
  } finally {
    await fixture.close()
  }
}

function attach(bench: Bench, agent: Running): void {
  const conf = {
    cniVersion: '1.0.0',
    name: 'bench',
    type: 'bridge',
    bridge: 'cni0',
    isGateway: true,
    mtu: 1450,
    ipam: { type: 'host-local', dataDir: bench.dataDir(), ranges: [[{ subnet: `${agent.subnet()}.0/24` }]] },
  }
  const pods = makePlaces(Array.from({ length: PODS }, (_, n) => `doctor${n}`))
  for (const [n, pod] of pods.entries())
    call({ side: bench.ours, type: 'bridge', node: agent.node, pod, conf }, 'ADD', `doctor${n}`)
}

async function ask({ node, dir }: Running): Promise<{ readonly ms: number; readonly mb: number }> {
  const argv = [
    join(import.meta.dir, '../../dist/plumb'),
    ...['doctor', '--json', '--socket', `${dir}/agent.sock`, '--subnet-file', `${dir}/subnet.env`],
  ]
  const started = performance.now()
  const child = inside(node, () => Bun.spawn(argv, { stdin: 'ignore', stdout: 'pipe', stderr: 'inherit' }))
  const [peak, text] = await Promise.all([peakOf(child), new Response(child.stdout).text()])
  const report = JSON.parse(text) as { readonly made: readonly string[] }
  if (report.made.length < AGENT_CHECKS.length) throw new Error(`the doctor made ${report.made.length} checks only`)
  return { ms: performance.now() - started, mb: peak / 1000 }
}

// The most memory of a process, in kB. The kernel's maxrss counts that of the parent, too, until exec.
async function peakOf(child: Bun.Subprocess): Promise<number> {
  let peak = 0
  while (child.exitCode === null) {
    const [, seen = 0] = /^VmHWM:\s*(\d+) kB$/m.exec(readFileSync(`/proc/${child.pid}/status`, 'utf8')) ?? []
    peak = Math.max(peak, Number(seen))
    await Bun.sleep(LOOK_MS)
  }
  return peak
}

function makeNetwork(dir: string): Parameters<typeof listsReader>[0] {
  const confDir = join(dir, 'net.d')
  mkdirSync(confDir)
  const plugins = [{ type: 'flannel', delegate: { isDefaultGateway: true } }, { type: 'portmap' }]
  writeFileSync(join(confDir, '10-flannel.conflist'), JSON.stringify({ cniVersion: '1.0.0', name: 'cbr0', plugins }))
  return { confDir, binDir: join(import.meta.dir, '../../dist'), install: false }
}

// The CPU time of one look, as the agent makes it: parts/data-path.ts.
async function looks({ node, dir }: Running): Promise<number> {
  const agent = (await (await fetch('http://agent/status', { unix: `${dir}/agent.sock` })).json()) as Status
  const pods = podsOf(entries())
  const ruleset = await inside(node, () => readRuleset(run))
  const lists = listsReader(makeNetwork(dir))
  const look = () =>
    inside(node, () => {
      const before = { reading: readCounters(), ms: 1000 }
      return examine(factsOfAgent({ agent, pods, ruleset, lists, before }), AGENT_CHECKS)
    })
  look()
  const before = process.cpuUsage()
  for (let i = 0; i < LOOKS; i++) look()
  const { user, system } = process.cpuUsage(before)
  return (user + system) / 1000 / LOOKS
}
