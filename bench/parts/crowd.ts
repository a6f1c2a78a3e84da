import { type Call, call } from '../call.ts'
import { growth } from '../growth.ts'
import { bridgeConf, makeNode, portsConf } from '../node.ts'
import { FIRST_PORT, linkOthers, mapOthers, reserveOthers, rulesOfOthers } from '../others.ts'
import type { Bench } from '../part.ts'
import type { Table } from '../report.ts'
import type { Side } from '../sides.ts'

const OTHERS =
  'Medians in ms. Each of the others has its veth pair (up, 250 to a bridge; the far ends lie in one namespace), its reservation, and what its side keeps for it: with the reference the chains, the rules in them and the jumps of a real attachment, written again under the name of each by iptables-restore;'

/** bridge with ipMasq on a node that has other attachments already. */
export function crowd(bench: Bench): Promise<Table> {
  return among(
    bench,
    false,
    'bridge + ipMasq among other attachments',
    `${OTHERS} nothing of its own with plumb, whose elements are the network's. Both references share their nodes.`,
  )
}

/** The same with a host port for everybody. */
export function ports(bench: Bench): Promise<Table> {
  return among(
    bench,
    true,
    'bridge + ipMasq + portmap among other attachments with a host port each',
    `${OTHERS} with plumb its elements, its claim and its record. Both references share their nodes.`,
  )
}

async function among(bench: Bench, mapped: boolean, title: string, method: string): Promise<Table> {
  const nodes = new Map<string, Pick<Call, 'node' | 'conf' | 'run'>>()
  return growth(bench, {
    title,
    method,
    unit: 'others',
    levels: mapped ? [0, 4000] : [0, 1000, 4000],
    times: 30,
    share: (level) => (level >= 4000 ? (mapped ? 0.2 : 0.3) : level >= 1000 ? 0.5 : 1),
    bar: { most: 1.15, verbs: ['ADD'], levels: [4000] },
    async prepare(side, level) {
      const key = `${side.ours} ${level}`
      const { node: pods, pod } = makeNode()
      const made = nodes.get(key) ?? (await populate(bench, side, level, mapped, pods))
      nodes.set(key, made)
      return { side, type: 'bridge', ...made, pod, ...(mapped ? { chained: [portsConf(1, FIRST_PORT - 1)] } : {}) }
    },
  })
}

async function populate(
  bench: Bench,
  side: Side,
  level: number,
  mapped: boolean,
  pods: Call['pod'],
): Promise<Pick<Call, 'node' | 'conf' | 'run'>> {
  const { node, pod } = makeNode()
  const dataDir = bench.dataDir()
  const conf = bridgeConf(dataDir, true)
  // Claims are the node's: each node has its own.
  const run = `/run/bench/${side.ours}-${mapped}-${level}`
  if (level === 0) return { node, conf, run }
  reserveOthers(dataDir, level)
  const first = {
    side,
    type: 'bridge',
    node,
    pod,
    conf,
    run,
    ...(mapped ? { chained: [portsConf(1, FIRST_PORT - 1)] } : {}),
  }
  call(first, 'ADD', 'first')
  await linkOthers(node, pods, level, side.ours)
  if (!side.ours) rulesOfOthers(node, level)
  else if (mapped) mapOthers(node, level)
  call(first, 'DEL', 'first')
  return { node, conf, run }
}
