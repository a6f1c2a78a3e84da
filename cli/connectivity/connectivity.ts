// Tests whether pods and nodes reach each other. Begin here. Each node has an end (`end.ts`): two test pods, echo
// servers, and what sends from there. The ends of other nodes are asked by a command (`far-end.ts`). `routes.ts` says what a
// case is, `cases.ts` and `cluster-cases.ts` which there are, `attempt.ts` tries one. `test-objects.ts` has what the
// Kubernetes API needs for it.
import type { Attempt, Outcome } from './attempt.ts'
import { pairsOf, routesOf } from './cases.ts'
import { type ClusterFacts, policyRoutes } from './cluster-cases.ts'
import type { End } from './end.ts'
import type { CaseOptions, Route, Test } from './routes.ts'

/** What became of one case. */
export interface Result {
  readonly test: Test
  readonly route: Route
  readonly state: 'ok' | 'failed' | 'not made'
  /** What happened, in words. */
  readonly says: string
  readonly seconds: number
  /** What a trace of a packet like those of the case says, in one sentence. Only some failed cases are traced. */
  readonly trace?: string
}

/** The bytes of a TCP case, of a datagram, and of a small echo request. */
const [STREAM, DATAGRAM, SMALL] = [1_048_576, 1000, 100]
/** So many routes are tested at once. */
const AT_ONCE = 12
/** Within this time, all nodes know an object of the API. Milliseconds. */
const SETTLE_MS = 15_000
/** The pause before a case is tried again, in milliseconds. */
const AGAIN_MS = 200

/**
 * Makes all cases between these nodes, several at once. A test that needs another one that failed is not made. Never
 * rejects: an end that fails is a failed case.
 */
export function testAll(ends: ReadonlyMap<string, End>, wish: CaseOptions, cluster?: ClusterFacts): Promise<Result[]> {
  return testRoutes(ends, routesOf(factsOf(ends), wish, cluster))
}

/** Makes the cases of a policy that isolates the second pods, where it is enforced. Never rejects. */
export function testPolicy(ends: ReadonlyMap<string, End>, { round = 0 }: CaseOptions): Promise<Result[]> {
  const facts = factsOf(ends)
  return testRoutes(
    ends,
    pairsOf([...ends.keys()], round).flatMap(([near, far]) => policyRoutes(facts, near, far)),
  )
}

/** What the ends tell of their nodes. */
export function factsOf(ends: ReadonlyMap<string, End>): ReadonlyMap<string, End['facts']> {
  return new Map([...ends].map(([name, { facts }]) => [name, facts]))
}

async function testRoutes(ends: ReadonlyMap<string, End>, routes: readonly Route[]): Promise<Result[]> {
  const settled = performance.now() + SETTLE_MS
  const results: Result[][] = []
  const left = routes.entries()
  const work = async () => {
    for (const [i, route] of left) results[i] = await testRoute(ends.get(route.from.node) as End, route, settled)
  }
  await Promise.all(Array.from({ length: AT_ONCE }, work))
  return results.flat()
}

async function testRoute(end: End, route: Route, settled: number): Promise<Result[]> {
  const { ip, tcp, udp, sctp = 0 } = route.to.address
  const { lookUp } = route
  const look = lookUp ? { lookUp } : {}
  const timed = (tried: Attempt) => timedAttempt(end, route, { ...tried, ...look }, settled)
  const echo = (bytes: number) => timed({ protocol: 'ICMP', to: ip, port: 0, bytes })
  const results = new Map<Test, Result>()
  const set = (test: Test, state: Result['state'], { says, seconds }: { says: string; seconds: number }) =>
    results.set(test, { test, route, state, says, seconds })
  const plain = async (test: Test, made: Promise<Timed>) => {
    const outcome = await made
    if (route.isDenied && outcome.state === 'arrived')
      set(test, 'failed', { ...outcome, says: `the policy does not deny it: ${outcome.says}` })
    else set(test, route.isDenied || outcome.state === 'arrived' ? 'ok' : 'failed', outcome)
    return outcome
  }
  const has = (test: Test) => route.tests.includes(test)
  const streams = async () => {
    // A server outside echoes nothing.
    const bytes = route.to.place === 'outside' ? 0 : STREAM
    const [stream, datagram, association] = await Promise.all([
      has('TCP') ? plain('TCP', timed({ protocol: 'TCP', to: ip, port: tcp, bytes })) : undefined,
      has('UDP') ? plain('UDP', timed({ protocol: 'UDP', to: ip, port: udp, bytes: DATAGRAM })) : undefined,
      has('SCTP') ? plain('SCTP', timed({ protocol: 'SCTP', to: ip, port: sctp, bytes: 0 })) : undefined,
    ])
    if (!has('source address')) return
    const seen = [stream, datagram, association].flatMap((one) => one?.saw ?? [])
    const isKept = seen.every((one) => route.sources.includes(one))
    // An address that is not kept says more than one that is.
    const saw = seen.find((one) => !route.sources.includes(one)) ?? seen[0]
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

async function timedAttempt(
  end: End,
  { from, settles, isDenied }: Route,
  tried: Attempt,
  settled: number,
): Promise<Timed> {
  const start = performance.now()
  const once = () =>
    end.attempt(from.place, tried).catch((cause: Error): Outcome => ({ state: 'lost', says: cause.message }))
  let outcome = await once()
  // A busy node may answer late. A packet of full size is asked for several times at once.
  if (outcome.state === 'lost' && !isDenied && (tried.protocol !== 'ICMP' || tried.bytes === SMALL))
    outcome = await once()
  while (settles && performance.now() < settled && (outcome.state === 'arrived') === (isDenied === true)) {
    await Bun.sleep(AGAIN_MS)
    outcome = await once()
  }
  return { ...outcome, seconds: (performance.now() - start) / 1000 }
}

/** The name of a case, such as `TCP IPv4 n1 pod 1 (10.244.1.2) → n2 pod 1 (10.244.2.2)`. */
export function titleOf({ test, route: { family, from, to } }: Pick<Result, 'test' | 'route'>): string {
  const [sender, receiver] = [from, to].map(({ node, place, address: { ip, tcp, udp } }) => {
    const ports = test === 'UDP' ? udp : tcp
    if (place === 'node') return `${node} (${ip})`
    if (place === 'outside') return tcp === 0 ? ip : `${ip} port ${tcp}`
    if (place === 'DNS') return `${ip} port ${tcp}`
    return /^pod/.test(place) ? `${node} ${place} (${ip})` : `${node} ${place} (${ip} port ${ports})`
  })
  return `${test} ${family} ${sender} → ${receiver}`
}
