import { generator } from '../support/random.ts'
import { type Node, type Pairs, places, text as written } from './json.ts'

/** Numbers from a seed: the same seed, the same case on every machine. */
export interface Dice {
  /** 0 to below `n`. */
  below(n: number): number
  pick<T>(list: readonly T[]): T
}

/**
 * Text that a tool, a shell, a file system, a terminal or JSON reads as something else than a name: each goes into
 * every string there is.
 */
export const STRINGS: readonly string[] = [
  '',
  ' ',
  'a\nlink delete dev lo',
  'a\r\nlink set lo down\r\n',
  'x } ; flush ruleset ; add element inet plumb masq4 { 1.2.3.4',
  'a" comment "b',
  "a' b",
  'a\\',
  'a#b',
  '$(reboot)`reboot`',
  '-batch',
  'a\0b',
  '\u0085\u00A0\u2028\u2029\u3000\uFEFF',
  '\u202Egnp.eth0',
  'ﬀ’é\u0301漢字🦊',
  '\uD800',
  '../../../../etc/passwd',
  '..',
  '/',
  '/dev/null',
  '/dev/full',
  '/proc/self/ns/net',
  'eth%d',
  'all',
  'lo',
  'if1',
  'eth0:1',
  'sixteen-byte-nam',
  '10.1.0.0/24',
  '10.1.0.7',
  '0.0.0.0/0',
  'ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff/128',
  'FF:FF:FF:FF:FF:FF',
  '1.2.0',
  '__proto__',
  'x'.repeat(4096),
  'é'.repeat(70_000),
]
/** More of it, which comes up when the dice say so. */
const MORE: readonly string[] = [
  '\n',
  'a b',
  'a\tb',
  'a;b',
  'a|b&c>d',
  '--help',
  '\0',
  '.',
  '//',
  '/proc/self/mem',
  '/run/netns',
  '/run/netns/gone',
  'br%s',
  'default',
  'eth0@if2',
  'fifteen-byte-na',
  'ééééééé',
  'cni0',
  'br0',
  'eth0',
  '10.1.0.0/33',
  '255.255.255.255/32',
  '010.1.0.1',
  '::/0',
  '::ffff:10.1.0.1',
  'fe80::1%eth0',
  '02:00:00:00:00:01',
  '02-00-00-00-00-01',
  '00:00:00:00:00:00',
  '0.1.0',
  '0.4.0',
  'constructor',
  'host-local',
  'bridge',
  'true',
  '0',
  'x'.repeat(255),
  // What takes a careless pattern minutes.
  `${' '.repeat(100_000)}x`,
  `${'\t\r'.repeat(50_000)}=`,
]
/** Ten megabytes without and with something in them that has to be escaped. */
export const HUGE: readonly string[] = ['x'.repeat(10_000_000), '"\n'.repeat(5_000_000)]

const NUMBERS: readonly Node[] = [
  0,
  -1,
  1,
  0.5,
  4094,
  4095,
  65_535,
  65_536,
  2 ** 31,
  2 ** 32,
  2 ** 53,
  -(2 ** 63),
  { raw: '1e999' },
  { raw: '-0' },
  { raw: '1e-999' },
  { raw: '18446744073709551616' },
  { raw: '1'.repeat(5000) },
  { raw: '0.1e1' },
  { raw: 'NaN' },
  { raw: '01' },
]
const KEYS = [
  '__proto__',
  'constructor',
  'prototype',
  'toString',
  'hasOwnProperty',
  'valueOf',
  'then',
  'toJSON',
  'length',
  '',
  ' ',
  '\n',
  'name',
  'NAME',
  'strict',
  'pairs',
  '\0',
  'x'.repeat(10_000),
]
const SIGNS: readonly string[] = [
  '"',
  '{',
  '}',
  '[',
  ']',
  ',',
  ':',
  '\\',
  '\\u0000',
  '\n',
  '\0',
  '//',
  '/*',
  '\uFEFF',
  'null',
  '-',
  '1e5',
]
const DEEP: readonly Node[] = [
  { raw: '['.repeat(100_000) },
  { raw: `${'['.repeat(100_000)}${']'.repeat(100_000)}` },
  { raw: `${'{"a":'.repeat(100_000)}1${'}'.repeat(100_000)}` },
]
const OTHERS: readonly Node[] = [null, true, false, [], { pairs: [] }, [[]], [null], { pairs: [['a', 1]] }, 'text', 7]

/** The dice of a case. */
export function dice(seed: number, number: number): Dice {
  const next = generator(Math.imul(seed, 0x9e3779b1) ^ Math.imul(number + 1, 0x85ebca6b))
  const below = (n: number) => Math.floor(next() * n)
  return { below, pick: (list) => list[below(list.length)] as never }
}

/**
 * Changes a configuration in one to three places, as a grammar would have it wrong; `others` are configurations to take
 * pieces from.
 */
export function mutate(conf: Node, others: readonly Node[], { below, pick }: Dice): void {
  for (let left = 1 + below(3); left > 0; left--) {
    const found = places(conf)
    const place = found[below(found.length)]
    if (!place) return
    const { of, at } = place
    const kind = below(14)
    if (kind < 4) place.set(sameKind(place.get(), { below, pick }))
    else if (kind === 4) place.set(clone(pick(OTHERS)))
    else if (kind === 5) remove(of, at)
    else if (kind === 6 && !Array.isArray(of))
      of.pairs.splice(below(of.pairs.length + 1), 0, [of.pairs[at]?.[0] ?? '', clone(pick(OTHERS))])
    else if (kind === 7 && !Array.isArray(of)) of.pairs[at] = [swapCase(of.pairs[at]?.[0] ?? '', below), place.get()]
    else if (kind === 8 && !Array.isArray(of))
      of.pairs.splice(below(of.pairs.length + 1), 0, [pick(KEYS), clone(pick(OTHERS))])
    else if (kind === 9) place.set(clone(pick(places(pick(others)))?.get() ?? null))
    else if (kind === 10) place.set(clone(pick(found).get()))
    else if (kind === 11) place.set(pick(NUMBERS))
    else if (kind === 12 && below(20) === 0) place.set(pick(DEEP))
    else if (kind === 13 && below(8) === 0 && found.length < 200)
      place.set(Array.from({ length: 1000 }, () => clone(place.get())))
  }
}

/** Changes bytes of a text: flipped, cut, doubled, put in. */
export function mutateBytes(bytes: Buffer, { below, pick }: Dice): Buffer {
  let out = bytes
  for (let left = 1 + below(4); left > 0; left--) {
    const at = below(out.length + 1)
    const to = Math.min(out.length, at + 1 + below(20))
    const kind = below(6)
    if (kind === 0 && at < out.length)
      out = Buffer.concat([out.subarray(0, at), Buffer.of((out[at] as number) ^ (1 << below(8))), out.subarray(at + 1)])
    else if (kind === 1) out = Buffer.concat([out.subarray(0, at), out.subarray(to)])
    else if (kind === 2) out = Buffer.concat([out.subarray(0, to), out.subarray(at)])
    else if (kind === 3) out = out.subarray(0, at)
    else if (kind === 4) out = Buffer.concat([out.subarray(0, at), Buffer.from(pick(SIGNS)), out.subarray(at)])
    else out = Buffer.concat([out.subarray(0, at), Buffer.from([0x80 + below(128), below(256)]), out.subarray(at)])
  }
  return out
}

/**
 * Changes a text in one to three of its words and signs: left out, doubled, swapped, or with a hostile text in their
 * place.
 */
export function mutateWords(text: string, { below, pick }: Dice): string {
  const words: string[] = text.match(/[\w.-]+|\s+|[^\w\s.-]/gu) ?? []
  for (let left = 1 + below(3); left > 0; left--) {
    const at = below(words.length)
    const word = words[at] ?? ''
    const kind = below(8)
    if (kind === 0) words.splice(at, 1)
    else if (kind === 1) words.splice(at, 0, word)
    else if (kind === 2) words.splice(at, 1, pick(words) ?? '')
    else if (kind === 3) words.splice(at, 0, pick(SIGNS))
    else if (kind === 4 && /^\d+$/.test(word)) words[at] = written(pick(NUMBERS))
    else if (kind === 5 && word.length < 100 && below(30) === 0)
      words.splice(at, 1, ...Array.from({ length: 5000 }, () => word))
    else words[at] = pick(pick([STRINGS, MORE]))
  }
  return words.join('')
}

/** A copy that shares nothing. */
export function clone(node: Node): Node {
  return typeof node === 'object' && node !== null && !('raw' in node)
    ? Array.isArray(node)
      ? node.map(clone)
      : { pairs: node.pairs.map(([key, value]) => [key, clone(value)]) }
    : node
}

function sameKind(node: Node, { below, pick }: Pick<Dice, 'below' | 'pick'>): Node {
  if (typeof node === 'string')
    return below(3) === 0 ? mutateBytes(Buffer.from(node), { below, pick }).toString() : pick(pick([STRINGS, MORE]))
  if (typeof node === 'number') return below(3) === 0 ? node + below(7) - 3 : pick(NUMBERS)
  if (typeof node === 'boolean') return !node
  return clone(pick(OTHERS))
}

function remove(of: Pairs | Node[], at: number): void {
  ;(Array.isArray(of) ? of : of.pairs).splice(at, 1)
}

function swapCase(key: string, below: Dice['below']): string {
  return [...key].map((letter) => (below(2) === 0 ? letter.toUpperCase() : letter.toLowerCase())).join('')
}
