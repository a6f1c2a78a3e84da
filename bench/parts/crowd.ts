import { type Call, call } from '../call.ts'
import { growth } from '../growth.ts'
import { bridgeConf, makeNode } from '../node.ts'
import { linkOthers, masqueradeOthers, reserveOthers } from '../others.ts'
import type { Bench } from '../part.ts'
import type { Table } from '../report.ts'
import type { Side } from '../sides.ts'

/** bridge with ipMasq on a node that has other attachments already. */
export async function crowd(bench: Bench): Promise<Table> {
  const nodes = new Map<string, Pick<Call, 'node' | 'conf'>>()
  return growth(bench, {
    title: 'bridge + ipMasq among other attachments',
    method:
      'Medians in ms. Each of the others has its veth pair (up, 250 to a bridge; the far ends lie in one namespace), its reservation, and what its side keeps for masquerading: nothing of its own with plumb; with the reference the chain, the two rules in it and the jump of a real attachment, written again under the name of each by iptables-restore. Both references share their nodes.',
    unit: 'others',
    levels: [0, 1000, 4000],
    times: 30,
    share: (level) => (level >= 4000 ? 0.3 : level >= 1000 ? 0.5 : 1),
    bar: { most: 1.15, verbs: ['ADD'], levels: [4000] },
    async prepare(side, level) {
      const key = `${side.ours} ${level}`
      const { node: pods, pod } = makeNode()
      const made = nodes.get(key) ?? (await populate(bench, side, level, pods))
      nodes.set(key, made)
      return { side, type: 'bridge', ...made, pod }
    },
  })
}

async function populate(bench: Bench, side: Side, level: number, pods: Call['pod']): Promise<Pick<Call, 'node' | 'conf'>> {
  const { node, pod } = makeNode()
  const dataDir = bench.dataDir()
  const conf = bridgeConf(dataDir, true)
  if (level === 0) return { node, conf }
  reserveOthers(dataDir, level)
  const first = { side, type: 'bridge', node, pod, conf }
  call(first, 'ADD', 'first')
  await linkOthers(node, pods, level, side.ours)
  if (!side.ours) masqueradeOthers(node, level)
  call(first, 'DEL', 'first')
  return { node, conf }
}
