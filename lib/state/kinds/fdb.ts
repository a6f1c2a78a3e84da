import type { IfName, Mac, Netns } from '../../text/values.ts'
import type { Handler, Line } from '../handler.ts'
import { inPodOf } from '../handler.ts'

/**
 * Static entries of a bridge's forwarding table. `sticky` keeps another port from taking over the address (bridge(8)).
 * The entries go with their port.
 */
export const fdb: Handler<Fdb> = {
  tool: 'bridge',
  title: ({ ns, dev }) => `fdb of ${dev}${inPodOf(ns)}`,
  purpose,
  key: ({ ns, dev, mac }) => `fdb ${ns} ${dev} ${mac}`,
  put: ({ dev, mac }) => [{ text: `fdb replace ${mac} dev ${dev} master static sticky` }],
  drop: ({ dev, mac }) => [{ text: `fdb delete ${mac} dev ${dev} master`, unless: /No such file|Cannot find device/ }],
  ask: ({ dev }) => `fdb show dev ${dev}`,
  read(row, want) {
    const { mac, state, flags } = row as { mac: string; state?: string; flags?: readonly string[] }
    return mac === want.mac && state === 'static' && flags?.includes('sticky') ? want : undefined
  },
}

/** A static entry of a bridge's forwarding table that no other port can take over. */
export interface Fdb {
  readonly kind: 'fdb'
  readonly ns: Netns
  readonly dev: IfName
  readonly mac: Mac
}

function purpose({ dev, mac }: Fdb, _: Line, gone: boolean): string {
  return gone ? `${dev} no longer owns ${mac}` : `frames for ${mac} go to ${dev}, and no other port can take it over`
}
