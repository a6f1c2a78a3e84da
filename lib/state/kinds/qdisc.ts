import type { Handler, Qdisc, Redirect } from '../resource.ts'

// By its handle the bucket is told from what others put there: theirs is neither changed nor removed. So is the filter by its place, which is behind others'.
const HANDLE = '504c:'
const PLACE = 'protocol all pref 20556'

/** Token buckets: made exclusively, changed in place when they are ours already. They die with their link, so that DEL starts no process for them. */
export const qdisc: Handler<Qdisc> = {
  tool: 'tc',
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

/** Redirections of what comes in by a link, in whatever clsact or ingress qdisc stands there. */
export const redirect: Handler<Redirect> = {
  tool: 'tc',
  key: ({ ns, dev }) => `redirect ${ns} ${dev}`,
  put: ({ dev, to }) => [
    // One that is there is as good, also another's. A filter of an earlier ADD, whose device may be gone, would stand before this one.
    { text: `qdisc add dev ${dev} clsact`, unless: /Exclusivity flag on/, otherwise: [{ text: `filter delete dev ${dev} ingress ${PLACE}`, unless: GONE }] },
    { text: `filter add dev ${dev} ingress ${PLACE} u32 match u32 0 0 action mirred egress redirect dev ${to}` },
  ],
  drop: ({ dev, replaced }) => (replaced ? [{ text: `filter delete dev ${dev} ingress ${PLACE}`, unless: GONE }] : []),
  ask: ({ dev }) => `filter show dev ${dev} ingress`,
  read(row, want) {
    const { pref, options } = row as FilterRow
    const [action] = options?.actions ?? []
    return pref === 20556 && action?.kind === 'mirred' ? { ...want, to: (action.to_dev ?? '') as typeof want.to } : undefined
  },
}

const GONE = /Cannot find|not found|No such|Invalid handle|does(n't| not) exist/

interface QdiscRow {
  readonly kind: string
  readonly handle: string
  readonly root?: boolean
  readonly options?: { readonly rate?: number; readonly burst?: number | string }
}
interface FilterRow {
  readonly pref?: number
  readonly options?: { readonly actions?: readonly { readonly kind?: string; readonly to_dev?: string }[] }
}

// A hundredth, or the few bytes of a tick.
function near(is: number, want: number): number {
  return Math.abs(is - want) <= Math.max(want / 100, 8) ? want : is
}
