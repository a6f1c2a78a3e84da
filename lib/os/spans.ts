/** A piece of work of a call: its name, and when it began and ended, in milliseconds since the start of the call. */
export interface Span {
  readonly name: string
  readonly from: number
  readonly to: number
  /** The words of a tool. Its input is left out. */
  readonly argv?: readonly string[]
}

let spans: Span[] | undefined
let begun = 0
const nothing = () => {}

/** Begins to record spans. Without it `span` costs nothing. */
export function recordSpans(): void {
  spans = []
  begun = performance.now()
}

/** The spans that ended since `recordSpans`. */
export function recordedSpans(): readonly Span[] {
  return spans ?? []
}

/** Begins a span. The returned function ends it. */
export function span(name: string, argv?: readonly string[]): () => void {
  if (spans === undefined) return nothing
  const from = performance.now() - begun
  return () => void spans?.push({ name, from, to: performance.now() - begun, ...(argv && { argv }) })
}

/** Does work within a span. */
export async function spanned<T>(name: string, work: () => T | Promise<T>): Promise<T> {
  if (spans === undefined) return work()
  const end = span(name)
  try {
    return await work()
  } finally {
    end()
  }
}
