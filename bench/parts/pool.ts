import { growth } from '../growth.ts'
import { makeNode, poolConf } from '../node.ts'
import { reserveOthers } from '../others.ts'
import type { Bench } from '../part.ts'
import type { Table } from '../report.ts'

/** host-local by itself, in a pool that others hold addresses of. */
export async function pool(bench: Bench): Promise<Table> {
  const places = makeNode()
  const dirs = new Map<string, string>()
  return growth(bench, {
    title: 'host-local among other reservations',
    method:
      'Medians in ms. The others are files of the common layout in one /16, from 10.1.0.2 on, and the note of the last one given out. Both references share their folders.',
    unit: 'others',
    levels: [0, 8000, 60_000],
    times: 40,
    share: (level) => (level >= 60_000 ? 0.2 : level >= 8000 ? 0.5 : 1),
    bar: { most: 1.2, verbs: ['ADD', 'DEL'], levels: [8000, 60_000] },
    prepare(side, level) {
      const key = `${side.ours} ${level}`
      const dataDir = dirs.get(key) ?? bench.dataDir()
      if (!dirs.has(key)) reserveOthers(dataDir, level)
      dirs.set(key, dataDir)
      return { side, type: 'host-local', ...places, conf: poolConf(dataDir) }
    },
  })
}
