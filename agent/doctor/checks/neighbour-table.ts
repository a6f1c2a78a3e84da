import { defineCheck, type SeenFault } from '../check.ts'

const TABLES = [
  { file: 'arp_cache', family: 'ipv4' },
  { file: 'ndisc_cache', family: 'ipv6' },
] as const
/** How full a table may be. */
const FULL = 0.9

/** The kernel's table of neighbours is full. Then no new neighbour is reached. Source: man arp(7), gc_thresh3. */
export const check = defineCheck({
  code: 'DR5',
  title: 'table of neighbours is full',
  severity: 'error',
  inAgent: 'part',
  isOfNode: true,
  reads: ['sysctl', 'counters', 'uncountedNeighbours'],
  detect({ sysctl, counters, uncountedNeighbours }) {
    return TABLES.flatMap(({ file, family }): SeenFault[] => {
      // The limit is of all namespaces together. Only the first one shows it.
      const limit = Number(sysctl(`${family}/neigh/default/gc_thresh3`) || Number.NaN)
      const all = counters.values.get(`${file}.entries`) ?? 0
      // The entries of tunnels are permanent. On a node with 1,000 peers they are nearly all.
      const count = all >= limit * FULL ? all - uncountedNeighbours(family === 'ipv4' ? 4 : 6) : all
      const lost = counters.growth.get(`${file}.table_fulls`) ?? 0
      if (!(count >= limit * FULL) && lost === 0) return []
      const name = `net.${family}.neigh.default.gc_thresh3`
      const more = Math.max(4096, 2 ** Math.ceil(Math.log2((limit || 1024) + 1)))
      return [
        {
          what: `The table of ${family === 'ipv4' ? 'IPv4' : 'IPv6'} neighbours has ${count} of at most ${limit} (${name})`,
          effect: 'packets to new neighbours are lost when it is full',
          commands: [`sysctl -w ${name}=${more}`, `echo '${name} = ${more}' >/etc/sysctl.d/90-plumb-${file}.conf`],
        },
      ]
    })
  },
})
