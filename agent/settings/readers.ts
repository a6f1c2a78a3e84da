import { isSix } from '../../lib/text/cidr.ts'
import { shown, ValueError } from '../../lib/text/errors.ts'
import { type Ip, parseIp } from '../../lib/text/ip.ts'
import type { Both } from '../lease/lease.ts'
import { FLAGS, type Flag, type FlagName } from './flags.ts'
import type { Given } from './sources.ts'

/** Reads settings by name. An unset setting has its default. Every message names the place of the value. */
export interface Readers {
  /** One value, read by a parser that throws ValueError `<value>: want …`. Undefined when the value is empty. */
  one<T>(name: FlagName, parser: (text: string) => T): T | undefined
  /** All values. A list is split at its commas. */
  several<T>(name: FlagName, parser: (text: string) => T): T[]
  text(name: FlagName): string
  /** True or false, in the forms of Go's strconv.ParseBool. */
  flag(name: FlagName): boolean
  number(name: FlagName, min: number, max: number): number
  /** At most one address per family. */
  both(name: FlagName): Both<Ip>
  /** Throws ValueError for a value that is valid alone, but not here. */
  refuse(name: FlagName, why: string): never
}

/** Makes the readers for the given settings. */
export function readersOf(given: Given): Readers {
  const valuesOf = (name: FlagName) => {
    const { kind, fallback }: Flag = FLAGS[name]
    const values = given.get(name)?.values ?? [fallback]
    return kind === 'list' ? values.flatMap((value) => value.split(',')).map((value) => value.trim()) : values
  }
  const at = (name: FlagName) => given.get(name)?.at ?? `--${name}`
  const readers: Readers = {
    one: (name, parser) => readers.several(name, parser).at(-1),
    several: (name, parser) =>
      valuesOf(name)
        .filter((value) => value !== '')
        .map((value) => parsed(at(name), value, parser)),
    text: (name) => valuesOf(name).at(-1) ?? '',
    flag: (name) => parsed(at(name), readers.text(name), truth),
    number: (name, min, max) => parsed(at(name), readers.text(name), whole(min, max)),
    both(name) {
      const all = readers.several(name, parseIp)
      const [v4, v6] = [all.filter((ip) => !isSix(ip)), all.filter(isSix)]
      if (v4.length > 1 || v6.length > 1) readers.refuse(name, `${shown(all.join(','))}: want one address per family`)
      return { ...(v4[0] && { v4: v4[0] }), ...(v6[0] && { v6: v6[0] }) }
    },
    refuse(name, why) {
      throw new ValueError(`Cannot read ${at(name)} ${why}`)
    },
  }
  return readers
}

function parsed<T>(at: string, value: string, parser: (text: string) => T): T {
  try {
    return parser(value)
  } catch (cause) {
    throw new ValueError(`Cannot read ${at} ${(cause as Error).message}`, { cause })
  }
}

function truth(text: string): boolean {
  if (/^(1|t|T|TRUE|true|True)$/.test(text)) return true
  if (/^(0|f|F|FALSE|false|False)$/.test(text)) return false
  throw new ValueError(`${shown(text)}: want true or false`)
}

function whole(min: number, max: number): (text: string) => number {
  return (text) => {
    if (!/^(0|[1-9]\d{0,9})$/.test(text) || Number(text) < min || Number(text) > max)
      throw new ValueError(`${shown(text)}: want a whole number, ${min} to ${max}`)
    return Number(text)
  }
}

/**
 * The annotation prefix as flannel completes it: a name alone gets a slash, one with a slash a dash. Throws ValueError.
 */
export function prefixOf(text: string): string {
  if (
    !/^[a-z0-9]([a-z0-9.-]*[a-z0-9])?(\/([a-zA-Z0-9]([\w.-]*[a-zA-Z0-9])?)?)?[/-]?$/.test(text) ||
    text.split('/').length > 2
  )
    throw new ValueError(`${shown(text)}: want a prefix such as flannel.alpha.coreos.com or example.org/flannel`)
  if (text.endsWith('/') || text.endsWith('-')) return text
  return `${text}${text.includes('/') ? '-' : '/'}`
}
