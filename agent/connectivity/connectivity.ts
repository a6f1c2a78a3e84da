// Tests whether pods and nodes reach each other. Begin here. Each node has an end (`end.ts`): two test pods, echo
// servers, and what sends from there. The ends of other nodes are asked by a command (`far-end.ts`). `cases.ts` says what
// is tried, `attempt.ts` tries it.
import type { Outcome } from './attempt.ts'
import { type Route, routesOf, type Test, type Wish } from './cases.ts'
import type { End } from './end.ts'

/** What became of one case. */
export interface Result {
  readonly test: Test
  readonly route: Route
  readonly state: 'ok' | 'failed' | 'not made'
  /** What happened, in words. */
  readonly says: string
  readonly seconds: number
}

/** The bytes of a TCP case, of a datagram, and of a small echo request. */
const [STREAM, DATAGRAM, SMALL] = [1_048_576, 1000, 100]
/** So many routes are tested at once. */
const AT_ONCE = 12

/**
 * Makes all cases between these nodes, several at once. A test that needs another one that failed is not made. Never
 * rejects: an end that fails is a failed case.
 */
export async function testAll(ends: ReadonlyMap<string, End>, wish: Wish): Promise<Result[]> {
  const routes = routesOf(new Map([...ends].map(([name, { facts }]) => [name, facts])), wish)
  const results: Result[][] = []
  const left = routes.entries()
  const work = async () => {
    for (const [i, route] of left) results[i] = await testRoute(ends.get(route.from.node) as End, route)
  }
  await Promise.all(Array.from({ length: AT_ONCE }, work))
  return results.flat()
}

async function testRoute(end: End, route: Route): Promise<Result[]> {
  const { ip, tcp, udp } = route.to.address
  const echo = (bytes: number) => timed(end, route, { protocol: 'ICMP', to: ip, port: 0, bytes })
  const results = new Map<Test, Result>()
  const set = (test: Test, state: Result['state'], { says, seconds }: { says: string; seconds: number }) =>
    results.set(test, { test, route, state, says, seconds })
  const plain = async (test: Test, made: Promise<Timed>) => {
    const outcome = await made
    set(test, outcome.state === 'arrived' ? 'ok' : 'failed', outcome)
    return outcome
  }
  const has = (test: Test) => route.tests.includes(test)
  const streams = async () => {
    // A server outside echoes nothing.
    const bytes = has('source address') ? STREAM : 0
    const [stream, datagram] = await Promise.all([
      has('TCP') ? plain('TCP', timed(end, route, { protocol: 'TCP', to: ip, port: tcp, bytes })) : undefined,
      has('UDP') ? plain('UDP', timed(end, route, { protocol: 'UDP', to: ip, port: udp, bytes: DATAGRAM })) : undefined,
    ])
    if (!has('source address')) return
    const saw = stream?.saw ?? datagram?.saw
    const isKept = saw !== undefined && route.sources.includes(saw)
    const want = route.sources.length === 1 ? (route.sources[0] as string) : `an address of ${route.from.node}`
    if (saw === undefined) set('source address', 'not made', { says: 'nothing arrives', seconds: 0 })
    else
      set('source address', isKept ? 'ok' : 'failed', {
        says: isKept ? `the receiver saw ${saw}` : `the receiver saw ${saw}, not ${want}`,
        seconds: 0,
      })
  }
  const echoes = async () => {
    if (!has('ICMP')) return
    const small = await plain('ICMP', echo(SMALL))
    if (!has('full size')) return
    const full = small.state === 'arrived' ? await plain('full size', echo(route.mtu)) : undefined
    if (!full) set('full size', 'not made', { says: 'no echo request arrives', seconds: 0 })
    if (full?.state === 'arrived') {
      const more = await echo(route.mtu + 1)
      // A node's own link may carry more than those of pods.
      const isRight = more.state === 'refused' || more.mtu === route.mtu || more.state === 'arrived'
      set('one byte more', isRight ? 'ok' : 'failed', more)
    } else set('one byte more', 'not made', { says: 'no packet of full size arrives', seconds: 0 })
  }
  await Promise.all([streams(), echoes()])
  return route.tests.map((test) => results.get(test) as Result)
}

type Timed = Outcome & { readonly seconds: number }

async function timed(end: End, { from }: Route, tried: Parameters<End['attempt']>[1]): Promise<Timed> {
  const start = performance.now()
  const outcome = await end
    .attempt(from.place, tried)
    .catch((cause: Error): Outcome => ({ state: 'lost', says: cause.message }))
  return { ...outcome, seconds: (performance.now() - start) / 1000 }
}

/** The name of a case, such as `TCP IPv4 n1 pod 1 (10.244.1.2) → n2 pod 1 (10.244.2.2)`. */
export function titleOf({ test, route: { family, from, to } }: Pick<Result, 'test' | 'route'>): string {
  const [sender, receiver] = [from, to].map(({ node, place, address: { ip, tcp } }) => {
    if (place === 'node') return `${node} (${ip})`
    if (place === 'outside') return tcp === 0 ? ip : `${ip} port ${tcp}`
    return place === 'host port' ? `${node} host port ${tcp} (${ip})` : `${node} ${place} (${ip})`
  })
  return `${test} ${family} ${sender} → ${receiver}`
}
