import type { Cidr } from '../../text/ip.ts'
import type { Handler, Line } from '../handler.ts'

/**
 * An address of a pod as a source of a firewalld zone. The zone then judges the packets from and to the address. It
 * lasts until firewalld reloads or ends.
 */
export interface Zoned {
  readonly kind: 'zoned'
  readonly ns: 'host'
  readonly zone: string
  readonly source: Cidr
}

/** Sources of zones of firewalld. */
export const zoned: Handler<Zoned> = {
  tool: 'firewalld',
  title: ({ zone, source }) => `source ${source} of zone ${zone} of firewalld`,
  purpose,
  key: ({ zone, source }) => `zoned ${zone} ${source}`,
  put: ({ zone, source }) => [{ text: `addSource ${zone} ${source}` }],
  drop: ({ zone, source }) => [{ text: `removeSource ${zone} ${source}` }],
  ask: ({ zone, source }) => `querySource ${zone} ${source}`,
  read: (_row, want) => want,
}

function purpose({ zone, source }: Zoned, _: Line, gone: boolean): string {
  return gone
    ? `${source} belongs to no zone of its own any more`
    : `what ${source} sends is judged as of the zone ${zone}`
}
