import { cold } from '../agent/cold.ts'
import { type Fixture, openFixture } from '../agent/fixture.ts'
import { idle } from '../agent/idle.ts'
import { joining } from '../agent/joining.ts'
import { account } from '../agent/process.ts'
import { repair, repairOf } from '../agent/repair.ts'
import type { Bench } from '../part.ts'
import type { Table } from '../report.ts'

const FEW = 100
// flanneld looks at its iptables rules every five seconds.
const WAIT_MS = 7000

/** The node agent beside flanneld: among ten thousand nodes, and among a hundred. */
export async function agent(bench: Bench): Promise<Table[]> {
  const fixture = await openFixture(bench)
  try {
    return [...(await amongMany(bench, fixture)), ...(await amongFew(bench, fixture))]
  } finally {
    await fixture.close()
  }
}

async function amongMany(bench: Bench, fixture: Fixture): Promise<Table[]> {
  const { table, started } = await cold(bench, fixture)
  const tables = [table, await joining(bench, fixture, started)]
  for (const { agent, network } of started) {
    if (agent.contender.ours)
      tables.push(
        await repair(fixture, agent, network.leases, { link: bench.times(10), other: bench.times(50) }, 500, []),
      )
    await agent.stop()
  }
  return tables
}

async function amongFew(bench: Bench, fixture: Fixture): Promise<Table[]> {
  const accounting = account(`${bench.dataDir()}/processes`)
  const agents = []
  for (const contender of fixture.contenders) {
    const agent = await fixture.start(contender, await fixture.populate({ backend: 'vxlan', leases: FEW }))
    await agent.reached(FEW, 10_000)
    agents.push(agent)
  }
  const tables = [await idle(bench, fixture, agents, FEW, accounting)]
  accounting.stop()
  const theirs = []
  for (const agent of agents) if (!agent.contender.ours) theirs.push(...repairOf(agent, FEW, WAIT_MS))
  for (const agent of agents)
    if (agent.contender.ours)
      tables.push(await repair(fixture, agent, FEW, { link: bench.times(100), other: bench.times(100) }, 100, theirs))
  await Promise.all(agents.map((agent) => agent.stop()))
  return tables
}
