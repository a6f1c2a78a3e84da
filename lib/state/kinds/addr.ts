import { type Cidr, split } from '../../text/ip.ts'
import type { Addr, Handler } from '../resource.ts'
import type { LinkRow } from './link.ts'

/** Addresses. IPv6 ones come without duplicate address detection unless asked: a pool gave them out once, and DAD costs 1 to 2 s. */
export const addr: Handler<Addr> = {
  tool: 'ip',
  key: ({ ns, dev, cidr }) => `addr ${ns} ${dev} ${cidr}`,
  put({ dev, cidr, dad, noprefixroute }) {
    const { family, length } = split(cidr)
    const extra = family === 6 ? (dad ? '' : ' nodad') : length < 31 ? ' brd +' : ''
    return [{ text: `addr replace ${cidr}${extra} dev ${dev}${noprefixroute ? ' noprefixroute' : ''}` }]
  },
  drop: ({ dev, cidr, stays }) => (stays ? [] : [{ text: `addr delete ${cidr} dev ${dev}`, unless: /Cannot (find device|assign requested address)|Address not found/ }]),
  ask: ({ dev }) => `addr show dev ${dev}`,
  read(row, want) {
    const found = (row as LinkRow).addr_info.find(({ local, prefixlen }) => `${local}/${prefixlen}` === want.cidr)
    return found && found.dadfailed !== true ? { kind: 'addr', ns: want.ns, dev: want.dev, cidr: `${found.local}/${found.prefixlen}` as Cidr } : undefined
  },
}
