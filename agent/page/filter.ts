import { distance } from '../../lib/text/distance.ts'

/**
 * What a key of a search asks of a thing. `exact`: one of its words, a `*` at the end stands for the rest. `text`: a
 * part of it. `number`: compared, with a unit if there is one: `5ms`, `10%`, `3m`.
 */
export type Field<T> =
  | { readonly kind: 'exact' | 'text'; of(thing: T): string | readonly string[] | undefined }
  | { readonly kind: 'number'; readonly units: Readonly<Record<string, number>>; of(thing: T): number | undefined }
/** The keys of a search, with what each asks. */
export type Fields<T> = Readonly<Record<string, Field<T>>>

/** A search that was read. */
export interface Filter<T> {
  matches(thing: T): boolean
  /** What cannot be searched for, a sentence each. Such words are passed over. */
  readonly mistakes: readonly string[]
}

/** Seconds of the units of time, for a field of an age. */
export const AGES = { '': 1, s: 1, m: 60, min: 60, h: 3600, d: 86_400 } as const

/**
 * Reads the words of a search. All of them must match. `!` before a word negates it, `a,b` is one of both, and a word
 * without a key is a part of `textOf`, which is in small letters. `"two words"` are one.
 */
export function readFilter<T>(search: string, fields: Fields<T>, textOf: (thing: T) => string): Filter<T> {
  const mistakes: string[] = []
  const tests = words(search).flatMap((word) => {
    const isNot = word.startsWith('!') && word.length > 1
    const test = testOf(isNot ? word.slice(1) : word, fields, textOf)
    if (typeof test === 'string') {
      mistakes.push(test)
      return []
    }
    return [isNot ? (thing: T) => !test(thing) : test]
  })
  return { matches: (thing) => tests.every((test) => test(thing)), mistakes }
}

function words(search: string): string[] {
  return [...search.matchAll(/(?:"[^"]*"?|\S)+/g)].map(([word]) => word.replaceAll('"', ''))
}

function testOf<T>(word: string, fields: Fields<T>, textOf: (thing: T) => string): ((thing: T) => boolean) | string {
  const [, key, sign, value] = /^([a-z]+)(:|<=|>=|<|>|=)(.*)$/i.exec(word) ?? []
  // An address of IPv6 has colons, too.
  const isAddress =
    /^[\da-f]*:[\da-f:.]*[:\d][\da-f:.]*$/i.test(word) && (key === undefined || !Object.hasOwn(fields, key))
  if (key === undefined || sign === undefined || value === undefined || isAddress) {
    const text = word.toLowerCase()
    return (thing) => textOf(thing).includes(text)
  }
  const field = Object.hasOwn(fields, key.toLowerCase()) ? fields[key.toLowerCase()] : undefined
  if (!field) return unknown(key, Object.keys(fields))
  const values = value.toLowerCase().split(',')
  if (field.kind === 'number') return compared(word, sign, values, field)
  if (sign !== ':' && sign !== '=') return `“${word}”: ${key} is no number; want ${key}:${value || 'a word'}`
  return (thing) => {
    const found = [field.of(thing) ?? []].flat().map((one) => one.toLowerCase())
    return values.some((wanted) => found.some((one) => isMatch(field.kind, one, wanted)))
  }
}

function isMatch(kind: 'exact' | 'text', value: string, wanted: string): boolean {
  if (kind === 'text') return value.includes(wanted)
  return wanted.endsWith('*') ? value.startsWith(wanted.slice(0, -1)) : value === wanted
}

function compared<T>(
  word: string,
  sign: string,
  values: readonly string[],
  { units, of }: Extract<Field<T>, { kind: 'number' }>,
): ((thing: T) => boolean) | string {
  const numbers = values.map((value) => {
    const [, digits, unit = ''] = /^(\d+(?:\.\d+)?)([a-z%µ]*)$/i.exec(value) ?? []
    const factor = Object.hasOwn(units, unit) ? units[unit] : undefined
    return digits === undefined || factor === undefined ? undefined : Number(digits) * factor
  })
  const known = Object.keys(units).filter((unit) => unit !== '')
  if (numbers.includes(undefined))
    return `“${word}”: want a number${known.length > 0 ? `, with ${known.join(', ')} or nothing after it` : ''}`
  return (thing) => {
    const is = of(thing)
    return is !== undefined && (numbers as number[]).some((number) => isSo(is, sign, number))
  }
}

function isSo(is: number, sign: string, number: number): boolean {
  if (sign === '<') return is < number
  if (sign === '>') return is > number
  if (sign === '<=') return is <= number
  return sign === '>=' ? is >= number : is === number
}

function unknown(key: string, known: readonly string[]): string {
  const near = known.map((name) => ({ name, far: distance(key.toLowerCase(), name) })).sort((a, b) => a.far - b.far)[0]
  const hint = near && near.far <= 2 ? `do you mean ${near.name}?` : `there is ${known.join(', ')}`
  return `“${key}” cannot be searched for; ${hint}`
}
