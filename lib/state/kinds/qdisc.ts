import type { IfName } from '../../text/values.ts'
import type { Handler, Line } from '../handler.ts'

/**
 * A token bucket (tc-tbf(8)) as the root qdisc of a link. It shapes the packets that leave the link. The kernel removes
 * it with the link.
 */
export interface Qdisc {
  readonly kind: 'qdisc'
  readonly ns: 'host'
  readonly dev: IfName
  readonly discipline: 'tbf'
  /** Bits per second. */
  readonly rate: number
  /** The bytes that pass at once after a pause. */
  readonly burst: number
  /** The bytes that may wait in the queue. */
  readonly limit: number
  /** The largest piece in bytes. Larger pieces are cut, although the burst has room for them. */
  readonly segment?: number
  /** The link stays, so `drop` must remove the qdisc. */
  readonly replaced?: true
}

// The handle identifies plumb's bucket. Qdiscs of other programs are neither changed nor removed.
const HANDLE = '504c:'

/**
 * Token buckets. `put` makes them exclusively, and changes plumb's existing bucket in place. They go with their link,
 * so DEL starts no process for them.
 */
export const qdisc: Handler<Qdisc> = {
  tool: 'tc',
  title: ({ dev }) => `shaping of ${dev}`,
  purpose,
  key: ({ ns, dev }) => `qdisc ${ns} ${dev}`,
  put: ({ dev, rate, burst, limit, segment }) => {
    // A second bucket limits the size of the largest piece (tbf_change). Its rate is so high that it has no effect on
    // traffic. It is not higher, because tc counts time in microseconds.
    const cut = segment === undefined ? '' : ` peakrate ${Math.max(1e9, 10 * rate)}bit mtu ${segment}`
    const bucket = `dev ${dev} root handle ${HANDLE} tbf rate ${rate}bit burst ${burst} limit ${limit}${cut}`
    return [
      { text: `qdisc add ${bucket}`, unless: /Exclusivity flag on/, otherwise: [{ text: `qdisc change ${bucket}` }] },
    ]
  },
  drop: ({ dev, replaced }) =>
    replaced ? [{ text: `qdisc delete dev ${dev} root handle ${HANDLE}`, unless: GONE }] : [],
  ask: ({ dev }) => `qdisc show dev ${dev}`,
  read(row, want) {
    const { kind, handle, root, options } = row as QdiscRow
    if (!root) return undefined
    if (kind !== want.discipline || handle !== HANDLE)
      return { ...want, discipline: `${kind} ${handle}` as typeof want.discipline }
    const { rate = 0, burst } = options ?? {}
    // With -d tc prints the burst as `3027b/1`, rounded to ticks of the kernel's clock. tc does not print the limit.
    return { ...want, rate: near(rate * 8, want.rate), burst: near(Number.parseInt(String(burst), 10), want.burst) }
  },
}

interface QdiscRow {
  readonly kind: string
  readonly handle: string
  readonly root?: boolean
  readonly options?: { readonly rate?: number; readonly burst?: number | string }
}

// Allows a difference of one hundredth, or the few bytes of a tick.
function near(is: number, want: number): number {
  return Math.abs(is - want) <= Math.max(want / 100, 8) ? want : is
}

function purpose({ dev, rate, limit }: Qdisc, _: Line, gone: boolean): string {
  return gone
    ? `${dev} is shaped no longer`
    : `at most ${rate} bit/s leave by ${dev}, and at most ${Math.round((limit * 8000) / rate)} ms of it wait`
}

const GONE = /Cannot find|not found|No such|Invalid handle|does(n't| not) exist/
