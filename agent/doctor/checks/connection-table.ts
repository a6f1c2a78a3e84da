import { defineCheck } from '../check.ts'

/** How full the table may be. Beyond this, a burst of new connections fills it. */
const FULL = 0.9

/** The table of connections (nf_conntrack) drops the first packet of a new connection when it is full. */
export const check = defineCheck({
  code: 'DR4',
  title: 'connection table is full',
  severity: 'error',
  inAgent: 'part',
  isOfNode: true,
  reads: ['sysctl', 'counters'],
  detect({ sysctl, counters }) {
    const [count, limit] = ['netfilter/nf_conntrack_count', 'netfilter/nf_conntrack_max'].map((name) =>
      Number(sysctl(name) || Number.NaN),
    )
    const isFull = count !== undefined && limit !== undefined && count >= limit * FULL
    const grew = (name: string) => counters.growth.get(`conntrack.${name}`) ?? 0
    const lost = grew('drop') + grew('early_drop')
    if (!isFull && lost === 0) return []
    const more = 2 ** Math.ceil(Math.log2((limit || 131_072) + 1))
    const told = lost > 0 ? `; ${lost} were dropped in the last ${(counters.ms / 1000).toFixed(1)} s` : ''
    return [
      {
        what: `The table of connections has ${count} of at most ${limit} (net.netfilter.nf_conntrack_max)${told}`,
        effect: 'new connections are lost when it is full',
        commands: [
          `sysctl -w net.netfilter.nf_conntrack_max=${more}`,
          `echo 'net.netfilter.nf_conntrack_max = ${more}' >/etc/sysctl.d/90-plumb-conntrack.conf`,
        ],
      },
    ]
  },
})
