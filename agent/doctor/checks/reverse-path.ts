import { defineCheck } from '../check.ts'
import type { Link } from '../facts/links.ts'

/**
 * Strict reverse path filtering drops a packet whose answer would leave by another link (RFC 3704). The kernel takes
 * the larger value of `all` and of the link. Source: Documentation/networking/ip-sysctl.rst.
 */
export const check = defineCheck({
  code: 'DR3',
  title: 'reverse path filter drops packets',
  severity: 'error',
  reads: ['sysctl', 'counters', 'links', 'agent'],
  detect({ sysctl, counters, links, agent }) {
    const dropped = counters.growth.get('TcpExt.IPReversePathFilter') ?? 0
    if (dropped === 0) return []
    const filterOf = (name: string) => Number(sysctl(`ipv4/conf/${name}/rp_filter`) ?? 0)
    const all = filterOf('all')
    const isOfPod = ({ name, kind }: Link) => kind === 'veth' && name !== agent?.uplink?.name
    const strict = links.filter((link) => link.name !== 'lo' && !isOfPod(link) && isStrict(all, filterOf(link.name)))
    if (strict.length === 0) return []
    const names = strict.map(({ name }) => name)
    const perMinute = Math.round((dropped * 60_000) / counters.ms)
    return [
      {
        what: `The reverse path filter drops ${perMinute} packets a minute; it is strict (1) on ${names.join(', ')}`,
        effect: 'packets are lost whose answers would leave by another link',
        commands: [
          ...(all === 1 ? ['sysctl -w net.ipv4.conf.all.rp_filter=0'] : []),
          ...names.map((name) => `sysctl -w net.ipv4.conf.${name.replaceAll('.', '/')}.rp_filter=2`),
        ],
      },
    ]
  },
})

function isStrict(all: number, own: number): boolean {
  return Math.max(all, own) === 1
}
