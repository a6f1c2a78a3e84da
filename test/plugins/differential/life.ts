import { execa } from 'execa'
import type { Namespace } from '../../support/harness.ts'
import { patient } from '../../support/patience.ts'
import { factsOfAnswers } from './answers.ts'
import { type Difference, differences, isParting } from './compare.ts'
import { type Pod, type Runtime, runtime, type Said, type Scene } from './list.ts'
import { makeNames, type Names, type Sight } from './names.ts'
import { onTwoNodes, type Place } from './node.ts'
import { type Prober, startProber } from './probes.ts'
import { look, lookAtLinks } from './raw.ts'
import { addressesOf, BY_HAND, probesOf, serversOf } from './reach.ts'
import { type Facts, factsOf, neighboursOf } from './view.ts'

/** How long a difference may last before it counts: the kernel does some of its work a moment after it was asked to. */
const PATIENCE_MS = patient(Number(process.env['PLUMB_DIFFERENTIAL_PATIENCE_MS'] ?? 10_000))
/** How long a server may take to answer. */
const ANSWER_MS = 800

/** One of the two nodes, and what is known of it. */
interface Side {
  readonly place: Place
  readonly runtime: Runtime
  readonly names: Names
  /** The pods whose namespace is there. */
  readonly pods: Set<Pod>
  prober?: Prober
}
/** Something to be looked at on both sides; `tries` counts from 0. */
type Look = (side: Side, tries: number) => Promise<Facts>
/** A scene on its way. */
interface Walk {
  readonly scene: Scene
  readonly sides: readonly Side[]
  /** Does something on both sides, and compares what came of it. */
  once(stage: string, work: Look): Promise<readonly Difference[]>
  /** Looks at both sides until they agree, or time is up. */
  settled(stage: string, work: Look): Promise<readonly Difference[]>
}

/** Says whether a difference is wanted; `refused` when an ADD of the scene was refused by both sides. */
export type Judge = (one: Difference, refused: boolean) => boolean

/**
 * Lives a scene from the first ADD to the last DEL on two nodes. One has the plugins of a reference's directory, the
 * other ours. Gives the unwanted differences.
 */
export async function live(scene: Scene, reference: string, isWanted: Judge): Promise<Difference[]> {
  const found: Difference[] = []
  await onTwoNodes(async (theirs, ours) => {
    const sides = await Promise.all([begin(scene, theirs, reference), begin(scene, ours)])
    let refused = false
    async function compare(stage: string, work: Look, patience: number): Promise<readonly Difference[]> {
      const end = Date.now() + patience
      for (let tries = 0; ; tries++) {
        const [one, other] = await Promise.all(sides.map((side) => work(side, tries)))
        if (stage.startsWith('add '))
          refused ||= [...(one as Facts).values()].some((value) => value.startsWith('refuses'))
        const all = differences(stage, one as Facts, other as Facts)
        const unwanted = all.filter((one) => !isWanted(one, refused))
        if (unwanted.length === 0 || Date.now() >= end) {
          found.push(...unwanted)
          return all
        }
        await Bun.sleep(250 * 2 ** tries)
      }
    }
    const walk: Walk = {
      scene,
      sides,
      once: (stage, work) => compare(stage, work, 0),
      settled: (stage, work) => compare(stage, work, PATIENCE_MS),
    }
    try {
      if (await attach(walk)) await detach(walk)
    } finally {
      await Promise.all(sides.map(closeProber))
    }
  })
  return found
}

/** What a node and a pod are like before the first call: the same for all. */
let fresh: Promise<Sight> | undefined

async function begin(scene: Scene, place: Place, dir?: string): Promise<Side> {
  const side: Side = {
    place,
    runtime: runtime(scene, place, dir),
    names: makeNames(JSON.stringify(scene), { a: place.a.path, b: place.b.path }),
    pods: new Set<Pod>(['a', 'b']),
  }
  fresh ??= see(side)
  await fresh
  if (scene.before) {
    const { status, stderr } = await place.node.exec(['sh', '-ec', scene.before])
    if (status !== 0) throw new Error(`Cannot prepare the node: ${stderr}`)
  }
  return side
}

/**
 * Both ADDs and what follows from them. False when one side did what the other refused: from there on they have nothing
 * in common.
 */
async function attach(walk: Walk): Promise<boolean> {
  const { scene, sides, once, settled } = walk
  for (const pod of ['a', 'b'] as const) if ((await once(`add ${pod}`, added(pod))).some(isParting)) return false
  await Promise.all(sides.map(({ place }) => Promise.all([place.node, place.a, place.b].map(unlessTentative))))
  await settled('added', seen)
  await Promise.all(sides.map((side) => byHand(side, scene)))
  await reached('packets', walk, 'a', 'b')
  if (sides.every(({ runtime }) => runtime.result('a')))
    await once(
      'check a',
      answered((side) => side.runtime.check('a')),
    )
  if (scene.list.cniVersion === '1.1.0')
    await once(
      'status',
      answered((side) => side.runtime.status()),
    )
  return true
}

async function detach(walk: Walk): Promise<void> {
  const { scene, sides, once, settled } = walk
  if (scene.del === 'gone') {
    // A socket would keep the namespace.
    await Promise.all(sides.map(closeProber))
    await Promise.all(
      sides.map(({ place }) => execa('ip', ['netns', 'delete', place.a.path.replace('/run/netns/', '')])),
    )
    for (const { pods } of sides) pods.delete('a')
  }
  const delA = answered(({ runtime, place }) => runtime.del('a', scene.del === 'empty' ? '' : place.a))
  for (const again of ['', ' again']) await once(`del a${again}`, delA)
  await settled('only b', seen)
  await reached('packets of b', walk, 'b')
  if (scene.gc) {
    await once(
      'gc',
      answered((side) => side.runtime.gc()),
    )
    await settled('after gc', seen)
  }
  await once(
    'del b',
    answered(({ runtime, place }) => runtime.del('b', place.b)),
  )
  await settled('none', seen)
}

const seen: Look = async (side) => {
  const marks = Object.fromEntries(
    (['a', 'b'] as const).map((pod) => [
      pod,
      [`pod-${pod}`, ...addressesOf(side.runtime.result(pod) ?? {}).map(({ ip }) => ip)],
    ]),
  )
  return factsOf(await see(side), (await fresh) as Sight, side.names, marks)
}

async function see({ place, pods }: Pick<Side, 'place' | 'pods'>): Promise<Sight> {
  const there = async (pod: Pod) => (pods.has(pod) ? { [pod]: await look(place[pod], 'pod') } : {})
  const [node, a, b] = await Promise.all([look(place.node, 'node'), there('a'), there('b')])
  return { node, ...a, ...b }
}

function answered(call: (side: Side) => Promise<Said[]>): Look {
  return async (side) => factsOfAnswers(await call(side), '', side.names)
}

// A result is told in the names that the links have once it is there.
function added(pod: Pod): Look {
  return async ({ runtime, place, names }) => {
    const said = await runtime.add(pod)
    const [node, inPod] = await Promise.all([lookAtLinks(place.node), lookAtLinks(place[pod])])
    names.learn({ node: { links: node }, [pod]: { links: inPod } })
    return factsOfAnswers(said, pod, names)
  }
}

/** Who reaches whom, and then who answered for whom. */
async function reached(stage: string, { scene, sides, settled }: Walk, ...pods: readonly Pod[]): Promise<void> {
  if (!sides.some(({ runtime }) => pods.some((pod) => runtime.result(pod)))) return
  await settled(stage, async (side, tries) => {
    side.prober ??= await startProber(serversOf(side.place, scene, [...side.pods]))
    const results = Object.fromEntries(pods.map((pod) => [pod, side.runtime.result(pod)]))
    return new Map(Object.entries(await side.prober.ask(probesOf(side.place, scene, results), ANSWER_MS * (tries + 1))))
  })
  if (pods.length > 1) await settled(`${stage}, neighbours`, neighbours)
}

const neighbours: Look = async ({ place, names }) => {
  const part = async (ns: Namespace) => ({ links: await lookAtLinks(ns), neighbours: await ns.json('neigh', 'show') })
  const [node, a, b] = await Promise.all([part(place.node), part(place.a), part(place.b)])
  return neighboursOf({ node, a, b }, names)
}

async function closeProber(side: Side): Promise<void> {
  await side.prober?.close()
  delete side.prober
}

/** Waits until duplicate address detection is over on all links of a namespace, or time is up. */
async function unlessTentative(ns: Namespace): Promise<void> {
  const end = Date.now() + PATIENCE_MS
  while (Date.now() < end && (await ns.ip('-6', 'addr', 'show', 'tentative')) !== '') await Bun.sleep(300)
}

// What a runtime has done before, by its loopback plugin, and what pods without a pool have to do themselves.
async function byHand({ place, runtime }: Side, { ifname = 'eth0' }: Scene): Promise<void> {
  for (const pod of ['a', 'b'] as const) {
    const { interfaces, ips } = runtime.result(pod) ?? {}
    await place[pod].exec([
      'sh',
      '-c',
      `ip link set lo up${interfaces && !ips ? `; ip addr add ${BY_HAND[pod]}/24 dev ${ifname}` : ''}`,
    ])
  }
}
