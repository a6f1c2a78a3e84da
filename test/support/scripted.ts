import type { Source } from '../../agent/http/server.ts'
import { BUCKETS, type Peer, type Status } from '../../agent/state/status.ts'
import { parseCidr, parseIp } from '../../lib/text/ip.ts'

/** A source whose status a test sets. */
export interface Scripted extends Source {
  /** Changes what is given, and tells who follows. */
  set(change: Partial<Status>): void
  /** Says since when a part has been in one step. */
  stuck(since: number): void
  /** Ends what all follow, as a source does that is closed. */
  end(): void
  /** How many follow the changes. */
  readonly followers: number
}

/** Makes one, ready, with peers. */
export function scripted(first: Partial<Status> = {}): Scripted {
  let status = judged({ ...calm(), ...first })
  let since: number | undefined
  let ends = 0
  const waiting = new Set<() => void>()
  async function* changes(signal: AbortSignal): AsyncIterable<Status> {
    let told: Status | undefined
    const end = ends
    let next = () => {}
    const resume = () => next()
    waiting.add(resume)
    signal.addEventListener('abort', resume)
    try {
      while (!signal.aborted && end === ends) {
        const news = new Promise<void>((resolve) => {
          next = resolve
        })
        if (told === status) await news
        else {
          told = status
          yield told
        }
      }
    } finally {
      waiting.delete(resume)
    }
  }
  return {
    status: () => status,
    changes,
    busy: () => (since === undefined ? undefined : { name: 'peers', since }),
    stuck(at) {
      since = at
    },
    set(change) {
      status = judged({ ...status, ...change })
      for (const resume of waiting) resume()
    },
    end() {
      ends++
      for (const resume of waiting) resume()
    },
    get followers() {
      return waiting.size
    },
  }
}

/** Peers node-1 to node-N, with subnets of both families. */
export function peers(count: number, backend = 'vxlan'): Peer[] {
  return Array.from({ length: count }, (_, i) => {
    const n = i + 1
    const [a, b] = [n >> 8, n & 255]
    return {
      node: `node-${n}`,
      subnets: { v4: parseCidr(`10.${64 + a}.${b}.0/24`), v6: parseCidr(`fd00:64:${n.toString(16)}::/64`) },
      ips: { v4: parseIp(`198.51.${a}.${b}`) },
      backend,
      probe: { state: 'answers', sent: 10, lost: 0, ms: 0.4 },
    }
  })
}

/** The state is what the rest comes to. */
function judged(status: Status): Status {
  return { ...status, state: !status.ready ? 'not ready' : status.degraded.length > 0 ? 'degraded' : 'ready' }
}

/** A status without anything wrong. */
function calm(): Status {
  const now = Date.now()
  return {
    node: 'node-0',
    version: '0.1.0',
    started: now - 3_720_000,
    network: { v4: parseCidr('10.64.0.0/12'), v6: parseCidr('fd00:64::/48') },
    subnets: { v4: parseCidr('10.64.0.0/24'), v6: parseCidr('fd00:64::/64') },
    backend: 'vxlan',
    mtu: 1450,
    uplink: {
      name: 'eth0',
      tunnel: { v4: '192.0.2.1' },
      advertise: { v4: '192.0.2.1' },
      why: 'eth0 has the default route, 192.0.2.1 is its first address',
    },
    store: { name: 'etcd', connected: true, heard: now - 400 },
    state: 'ready',
    ready: true,
    reasons: [],
    degraded: [],
    findings: [],
    peers: peers(3),
    unreadable: 0,
    kinds: {
      link: { wanted: 1, programmed: 1, repaired: 0 },
      addr: { wanted: 2, programmed: 2, repaired: 0 },
      route: { wanted: 6, programmed: 6, repaired: 2 },
      tunnel: { wanted: 3, programmed: 3, repaired: 1 },
      nft: { wanted: 4, programmed: 4, repaired: 0 },
    },
    repairs: [{ at: now - 60_000, what: 'route 10.64.2.0/24 was gone, made again' }],
    steps: {
      count: 120,
      sum: 0.9,
      buckets: BUCKETS.map((le) => (le < 0.0025 ? 20 : le < 0.01 ? 80 : le < 0.05 ? 118 : 120)),
    },
    lastError: undefined,
  }
}
