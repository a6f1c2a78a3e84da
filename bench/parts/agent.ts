import { cold } from '../agent/cold.ts'
import { idle } from '../agent/idle.ts'
import { joining } from '../agent/joining.ts'
import { account } from '../agent/process.ts'
import { repair, repairOf } from '../agent/repair.ts'
import { openWorld, type World } from '../agent/world.ts'
import type { Bench } from '../part.ts'
import type { Table } from '../report.ts'

const FEW = 100
// flanneld looks at its iptables rules every five seconds.
const WAIT_MS = 7000

/** The node agent beside flanneld: among ten thousand nodes, and among a hundred. */
export async function agent(bench: Bench): Promise<Table[]> {
  const world = await openWorld(bench)
  try {
    return [...(await amongMany(bench, world)), ...(await amongFew(bench, world))]
  } finally {
    await world.close()
  }
}

async function amongMany(bench: Bench, world: World): Promise<Table[]> {
  const { table, standing } = await cold(bench, world)
  const tables = [table, await joining(bench, world, standing)]
  for (const { agent, network } of standing) {
    if (agent.contender.ours)
      tables.push(
        await repair(world, agent, network.leases, { link: bench.times(10), other: bench.times(50) }, 500, []),
      )
    await agent.stop()
  }
  return tables
}

async function amongFew(bench: Bench, world: World): Promise<Table[]> {
  const accounting = account(`${bench.dataDir()}/processes`)
  const agents = []
  for (const contender of world.contenders) {
    const agent = await world.start(contender, await world.populate({ backend: 'vxlan', leases: FEW }))
    await agent.reached(FEW, 10_000)
    agents.push(agent)
  }
  const tables = [await idle(bench, world, agents, FEW, accounting)]
  accounting.stop()
  const theirs = []
  for (const agent of agents) if (!agent.contender.ours) theirs.push(...repairOf(agent, FEW, WAIT_MS))
  for (const agent of agents)
    if (agent.contender.ours)
      tables.push(await repair(world, agent, FEW, { link: bench.times(100), other: bench.times(100) }, 100, theirs))
  await Promise.all(agents.map((agent) => agent.stop()))
  return tables
}
