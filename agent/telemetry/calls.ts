import { dirname, join } from 'node:path'
import * as v from 'valibot'
import { read } from '../../lib/text/shape.ts'
import { CALLS, type Report } from '../../lib/verbs/report.ts'
import { keepSocket } from '../node/socket.ts'
import { type Durations, noDurations, withDuration } from '../scheduler/durations.ts'

/** The upper bounds of the histogram of calls, in seconds. */
export const CALL_BUCKETS: readonly number[] = [0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5, 30]

/** The calls of one plugin and verb since the start of the agent. */
export interface CallCount {
  readonly plugin: string
  readonly verb: string
  /** How long they took, by `CALL_BUCKETS`. */
  readonly took: Durations
  /** The failed ones, by their CNI code. */
  readonly errors: ReadonlyMap<number, number>
}

const VERBS = ['ADD', 'CHECK', 'DEL', 'GC', 'STATUS'] as const
/** The longest report in characters. A call of many tools has some thousand. */
const LONGEST = 65_536
/** A plugin name is a file name. More than these are not counted, so that nobody fills the memory. */
const [MOST_PLUGINS, MOST_CODES] = [50, 50]
const SPAN = v.object({
  name: v.pipe(v.string(), v.maxLength(100)),
  from: v.number(),
  to: v.number(),
  argv: v.exactOptional(v.array(v.string())),
})
const TRACE = v.object({
  parent: v.pipe(v.string(), v.regex(/^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$/)),
  state: v.exactOptional(v.string()),
  container: v.string(),
  ifname: v.string(),
  pod: v.exactOptional(v.string()),
  error: v.exactOptional(v.string()),
  spans: v.array(SPAN),
})
const REPORT = v.object({
  plugin: v.pipe(v.string(), v.regex(/^[\w.-]{1,64}$/)),
  verb: v.picklist(VERBS),
  at: v.number(),
  ms: v.pipe(v.number(), v.minValue(0)),
  code: v.exactOptional(v.pipe(v.number(), v.integer())),
  trace: v.exactOptional(TRACE),
})

interface Mutable {
  readonly plugin: string
  readonly verb: string
  took: Durations
  readonly errors: Map<number, number>
}

/** Counts the calls of plugins on this node, as they tell of them. `traced` gets those of a trace. */
export class Calls {
  readonly #counts = new Map<string, Mutable>()
  readonly #traced: ((report: Report) => void) | undefined

  constructor(traced?: (report: Report) => void) {
    this.#traced = traced
  }

  /** The counts so far. */
  counts(): CallCount[] {
    return [...this.#counts.values()].map((one) => ({ ...one }))
  }

  /** Takes a report, a line of JSON. Any other text is left out. */
  take(text: string): void {
    const report = reportOf(text)
    if (!report) return
    this.#count(report)
    if (report.trace) this.#traced?.(report)
  }

  /**
   * Listens for reports beside the agent's socket. Throws CniError 5 when it cannot, and 11 when another agent listens
   * there.
   */
  async listen(agentSocket: string): Promise<{ stop(): void }> {
    const unix = join(dirname(agentSocket), CALLS.slice(CALLS.lastIndexOf('/') + 1))
    return keepSocket(unix, () => {
      const listener = Bun.listen<{ text: string }>({
        unix,
        socket: {
          open(socket) {
            socket.data = { text: '' }
          },
          data: (socket, bytes) => {
            socket.data.text += bytes.toString()
            if (socket.data.text.length > LONGEST) socket.terminate()
          },
          end: (socket) => void socket.end(),
          close: ({ data }) => this.take(data.text),
        },
      })
      return { stop: () => listener.stop(true) }
    })
  }

  #count({ plugin, verb, ms, code }: Report): void {
    const key = `${plugin} ${verb}`
    let one = this.#counts.get(key)
    if (!one) {
      if (this.#counts.size >= MOST_PLUGINS * VERBS.length) return
      one = { plugin, verb, took: noDurations(CALL_BUCKETS), errors: new Map() }
      this.#counts.set(key, one)
    }
    one.took = withDuration(one.took, ms / 1000, CALL_BUCKETS)
    if (code !== undefined && (one.errors.has(code) || one.errors.size < MOST_CODES))
      one.errors.set(code, (one.errors.get(code) ?? 0) + 1)
  }
}

function reportOf(text: string): Report | undefined {
  if (text.length > LONGEST) return undefined
  try {
    return read(REPORT, JSON.parse(text)).value as Report
  } catch {
    return undefined
  }
}
