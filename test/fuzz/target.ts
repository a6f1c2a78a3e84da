import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { OutOfSubnetsError, StoreError, SubnetTakenError } from '../../agent/store/store.ts'
import { CniError, CODE, ExecError, ValueError } from '../../lib/text/errors.ts'
import { type Node, text, tree } from './json.ts'
import { type Dice, HUGE, mutate, mutateBytes, mutateWords, STRINGS } from './mutate.ts'

/** An input in its parts: files, arguments, packets. */
export type Parts = Readonly<Record<string, Buffer>>
/** One kind of input and its reader. */
export interface Target {
  readonly name: string
  /** What an input is made of, after a mutation of what is stored: bytes of another form than JSON. */
  built?(part: string, stored: string): Buffer
  /** Gives an input to plumb: throws what plumb refuses it with. What is wrong otherwise, one sentence each. */
  feed(parts: Parts): readonly string[] | undefined | Promise<readonly string[] | undefined>
}

/** Far more than plumb takes of anybody. */
const MOST = 2 ** 26

type Stored = Readonly<Record<string, unknown>>

/**
 * The stored inputs of a target: well formed, or such as were once taken wrong. A part is text as it stands, anything
 * else JSON.
 */
export function corpusOf(name: string): readonly Stored[] {
  return JSON.parse(readFileSync(join(import.meta.dir, `corpus/inputs/${name}.json`), 'utf8'))
}

/** A stored input as it is. */
export function asStored({ built = plain }: Target, stored: Stored): Parts {
  return Object.fromEntries(Object.entries(stored).map(([part, value]) => [part, built(part, written(tree(value)))]))
}

/** A stored input with one or two of its parts changed, as their grammar has it or byte by byte. */
export function varied({ built = plain }: Target, corpus: readonly Stored[], roll: Dice): Parts {
  const stored = Object.entries(roll.pick(corpus))
  const changed = new Set(Array.from({ length: 1 + roll.below(2) }, () => roll.below(stored.length)))
  const parts = stored.map(([part, value], at): [string, Buffer] => {
    if (!changed.has(at)) return [part, built(part, written(tree(value)))]
    const others = corpus.flatMap((one) => (one[part] === undefined ? [] : [tree(one[part])]))
    const isBytes = roll.below(4) === 0
    const made = built(part, isBytes ? written(tree(value)) : wrong(value, others, roll))
    return [part, isBytes ? mutateBytes(made, roll) : made]
  })
  return Object.fromEntries(parts)
}

/** What in a refusal is not as a person wants it: nothing, when it is one clear sentence. */
export function unclear(cause: unknown): string[] {
  const kinds = [ValueError, CniError, ExecError, StoreError, OutOfSubnetsError, SubnetTakenError]
  if (!kinds.some((kind) => cause instanceof kind))
    return [`a fault of plumb: ${(cause as Error)?.stack ?? String(cause)}`]
  const { message, details = '', code } = cause as Error & { details?: string; code?: number }
  const all: string[] = []
  if (cause instanceof CniError && !(Object.values(CODE) as number[]).includes(code as number))
    all.push(`no code of CNI: ${code}`)
  if (
    /Unexpected failure|\bundefined\b|\[object |call stack|is not a function|\bat .+:\d+:\d+/.test(
      `${message}\n${details}`,
    )
  )
    all.push(`a fault of plumb: ${message.slice(0, 500)} ${details.slice(0, 500)}`)
  if (/\p{Cc}/u.test(message) || /(?!\n)\p{Cc}/u.test(details))
    all.push(`a control character in ${JSON.stringify(message.slice(0, 500))} ${JSON.stringify(details.slice(0, 500))}`)
  if (!/Cannot|want|missing|has no|finds? no/.test(message))
    all.push(`it says nothing that helps: ${message.slice(0, 500)}`)
  if (message.length + details.length > 16_384)
    all.push(`an error of ${message.length + details.length} characters: ${message.slice(0, 300)}`)
  return all
}

function plain(_part: string, stored: string): Buffer {
  return Buffer.from(stored)
}

function written(node: Node): string {
  return typeof node === 'string' ? node : text(node)
}

function wrong(value: unknown, others: readonly Node[], roll: Dice): string {
  if (roll.below(2000) === 0) return roll.pick(HUGE)
  if (typeof value === 'string') return roll.below(4) === 0 ? roll.pick(STRINGS) : mutateWords(value, roll)
  const node = tree(value)
  mutate(node, others, roll)
  const made = text(node)
  // The fuzzer's own parser takes ten times as much for each, too.
  return made.length > MOST ? text(tree(value)) : made
}
