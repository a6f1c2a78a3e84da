import type { IfName } from '../../text/values.ts'
import type { Handler, Line } from '../handler.ts'

/** A token bucket (tc-tbf(8)) as the root of what leaves a link: it goes with the link. */
export interface Qdisc {
  readonly kind: 'qdisc'
  readonly ns: 'host'
  readonly dev: IfName
  readonly discipline: 'tbf'
  /** Bits per second. */
  readonly rate: number
  /** Bytes that pass at once after a pause. */
  readonly burst: number
  /** Bytes that may wait. */
  readonly limit: number
  /** Larger pieces are cut, though the burst had room for them. */
  readonly segment?: number
  /** The link stays: `drop` is to remove it. */
  readonly replaced?: true
}

// By its handle the bucket is told from what others put there: theirs is neither changed nor removed.
const HANDLE = '504c:'

/** Token buckets: made exclusively, changed in place when they are ours already. They die with their link, so that DEL starts no process for them. */
export const qdisc: Handler<Qdisc> = {
  tool: 'tc',
  title: ({ dev }) => `shaping of ${dev}`,
  purpose,
  key: ({ ns, dev }) => `qdisc ${ns} ${dev}`,
  put: ({ dev, rate, burst, limit, segment }) => {
    // A second bucket, too fast to be felt, whose size is the largest piece (tbf_change); tc counts it in microseconds, so not faster than that.
    const cut = segment === undefined ? '' : ` peakrate ${Math.max(1e9, 10 * rate)}bit mtu ${segment}`
    const bucket = `dev ${dev} root handle ${HANDLE} tbf rate ${rate}bit burst ${burst} limit ${limit}${cut}`
    return [{ text: `qdisc add ${bucket}`, unless: /Exclusivity flag on/, otherwise: [{ text: `qdisc change ${bucket}` }] }]
  },
  drop: ({ dev, replaced }) => (replaced ? [{ text: `qdisc delete dev ${dev} root handle ${HANDLE}`, unless: GONE }] : []),
  ask: ({ dev }) => `qdisc show dev ${dev}`,
  read(row, want) {
    const { kind, handle, root, options } = row as QdiscRow
    if (!root) return undefined
    if (kind !== want.discipline || handle !== HANDLE) return { ...want, discipline: `${kind} ${handle}` as typeof want.discipline }
    const { rate = 0, burst } = options ?? {}
    // With -d `3027b/1`: rounded to the ticks of the kernel's clock. The limit it does not print.
    return { ...want, rate: near(rate * 8, want.rate), burst: near(Number.parseInt(String(burst), 10), want.burst) }
  },
}

interface QdiscRow {
  readonly kind: string
  readonly handle: string
  readonly root?: boolean
  readonly options?: { readonly rate?: number; readonly burst?: number | string }
}

// A hundredth, or the few bytes of a tick.
function near(is: number, want: number): number {
  return Math.abs(is - want) <= Math.max(want / 100, 8) ? want : is
}

function purpose({ dev, rate, limit }: Qdisc, _: Line, gone: boolean): string {
  return gone ? `${dev} is shaped no longer` : `at most ${rate} bit/s leave by ${dev}, and at most ${Math.round((limit * 8000) / rate)} ms of it wait`
}

const GONE = /Cannot find|not found|No such|Invalid handle|does(n't| not) exist/
