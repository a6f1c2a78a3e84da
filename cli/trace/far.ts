// The half of a trace on the node of the receiver. A command of the user starts a second process there. Both talk by
// lines of JSON: the packet to follow, `ready`, the destination that the packet got, and what was seen.
import type * as v from 'valibot'
import { CniError, CODE } from '../../lib/text/errors.ts'
import type { Ip } from '../../lib/text/ip.ts'
import { linesOf } from '../../lib/text/lines.ts'
import { answer, arrival, question, read } from './far-lines.ts'
import type { HopName, Outcome, Outcomes } from './hops.ts'
import { probeMarks, wishMarks } from './marks.ts'
import { foreseeFar, type TraceFacts } from './oracle.ts'
import { type Probe, sizesOf } from './packet.ts'
import { ruleTexts } from './rules.ts'
import { observeFar } from './seen.ts'
import { Reader, type TraceMessage } from './sights.ts'
import { type TracedNamespace, watch } from './watch.ts'

/** What the other node is to follow. */
export type FarQuestion = v.InferOutput<typeof question>
/** The destination that the packet has there, and the packet. */
export type Destination = v.InferOutput<typeof arrival>
/** What the other node says of its hops. */
export type FarAnswer = v.InferOutput<typeof answer>
/** The process on the other node, which is ready. */
export interface Far {
  /** Asks what happened there, after the packet was sent. */
  answer(destination: Destination): Promise<FarAnswer>
  /** Ends the process. It removes what it made. */
  close(): Promise<void>
}

/** The word after `plumb trace` that starts the half of the other node. */
export const WATCH = '__watch'
/** The time in which the other node must be ready, and in which it answers. A login over ssh takes seconds. */
const [READY_MS, ANSWER_MS, LOOK_MS] = [15_000, 5000, 5]
/** The time in which it removes what it made. */
const END_MS = 3000
const READY = 'ready'
/** The most messages of the kernel that are kept. A packet has about 40. */
const MOST = 10_000

/** Starts the process on the other node. Throws CniError 11 when it is not ready in time. */
export async function startFar(command: readonly string[], question: FarQuestion): Promise<Far> {
  const cannot = `Cannot follow the packet by ${command.join(' ')}`
  const child = started([...command, 'trace', WATCH], cannot)
  const lines = linesOf(child.stdout)
  const close = async () => {
    try {
      await child.stdin.end()
    } catch {
      // It has ended.
    }
    await Promise.race([child.exited, Bun.sleep(END_MS)])
    child.kill()
  }
  // A command that has ended reads nothing. What it printed says more than a broken pipe.
  const say = async (value: unknown) => {
    try {
      child.stdin.write(`${JSON.stringify(value)}\n`)
      await child.stdin.flush()
    } catch {}
  }
  const next = async (ms: number): Promise<string> => {
    const line = await Promise.race([lines.next(), Bun.sleep(ms).then(() => undefined)])
    if (line && !line.done) return line.value
    child.kill()
    const said =
      line === undefined ? `it is silent for ${ms / 1000} s` : (await new Response(child.stderr).text()).trim()
    throw new CniError(CODE.tryLater, `${cannot}: ${said || 'it ended'}`)
  }
  await say(question)
  if ((await next(READY_MS)) !== READY) {
    await close()
    throw new CniError(CODE.tryLater, `${cannot}: it is no plumb that traces`)
  }
  return {
    async answer(destination) {
      await say(destination)
      const line = await next(ANSWER_MS)
      try {
        return read(answer, line)
      } catch (cause) {
        throw new CniError(CODE.tryLater, `${cannot}: ${(cause as Error).message}`, '', { cause })
      }
    },
    close,
  }
}

function started(argv: readonly string[], cannot: string) {
  try {
    return Bun.spawn([...argv], { stdin: 'pipe', stdout: 'pipe', stderr: 'pipe' })
  } catch (cause) {
    throw new CniError(CODE.tryLater, `${cannot}: ${(cause as Error).message}`, '', { cause })
  }
}

/** What the half on this node needs of it. */
export interface FarNode {
  /** The namespaces in which the packet is followed. */
  places(destinations: readonly Ip[]): readonly TracedNamespace[]
  facts(probe: Probe, destination: Omit<Destination, 'probe'>): Promise<TraceFacts>
  /** The links by which packets of an address come in. */
  linksFrom(source: Ip): readonly string[]
  /** The UDP port of VXLAN, and the names of its links. */
  readonly tunnel?: number
  readonly tunnels: readonly string[]
}

/**
 * Follows the packet of another node on this one: reads questions from the lines of `input`, and gives the answers to
 * `say`. Ends when the other side ends. Throws ExecError.
 */
export async function followFar(
  input: ReadableStream<Uint8Array>,
  say: (line: string) => void,
  node: FarNode,
): Promise<void> {
  const lines = linesOf(input)
  const { value: first } = await lines.next()
  if (first === undefined) return
  const asked = read(question, first)
  const { destinations } = asked
  const places = node.places(destinations)
  const links = node.linksFrom(('probe' in asked ? asked.probe : asked.wish).source)
  const marks =
    'probe' in asked ? probeMarks(asked.probe, node.tunnel, links) : wishMarks(asked.wish, 0, node.tunnel, links)
  const watching = await watch(places, marks)
  try {
    say(READY)
    let last: { readonly line: string | undefined } | undefined
    void lines.next().then(({ value }) => {
      last = { line: value ?? undefined }
    })
    const heard: TraceMessage[] = []
    const listen = () => {
      heard.push(...watching.messages())
      heard.splice(0, heard.length - MOST)
    }
    while (last === undefined) {
      listen()
      await Bun.sleep(LOOK_MS)
    }
    listen()
    const { line } = last as { readonly line: string | undefined }
    if (line === undefined) return
    const { probe, ...destination } = read(arrival, line)
    const reader = new Reader(probe, watching.table, node.tunnel)
    const sights = heard.flatMap((one) => reader.read(one) ?? [])
    const facts = await node.facts(probe, destination)
    const texts = await ruleTexts(sights, places)
    const seen = observeFar({
      ...{ probe, sights, isNodeSource: false, tunnels: node.tunnels },
      drops: watching.drops?.drops(links.flatMap((link) => sizesOf(probe).map((bytes) => ({ link, bytes })))) ?? [],
      isTargetWatched: facts.at(destination.ip) !== undefined,
      ruleOf: (sight) => texts.get(sight),
    })
    const { protocol, source } = probe
    const expected = foreseeFar({ protocol, source, destination: destination.ip, port: destination.port }, facts)
    say(JSON.stringify({ expected: [...expected], seen: [...seen] } satisfies FarAnswer))
  } finally {
    await watching.close()
  }
}

/** Puts what the other node says into what this one says. Pure. */
export function withFar(near: Outcomes, far: readonly (readonly [HopName, Outcome])[]): Outcomes {
  return new Map([...near, ...far])
}
