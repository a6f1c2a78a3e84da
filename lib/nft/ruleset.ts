import { readText } from '../os/reading.ts'
import type { Run } from '../os/run.ts'
import type { Resource } from '../state/resource.ts'
import { digest } from '../text/digest.ts'
import { shown, ValueError } from '../text/errors.ts'
import { CHAINS } from './chains.ts'
import firewall from './firewall.nft' with { type: 'text' }
import gateways from './gateways.nft' with { type: 'text' }
import ports from './host-ports.nft' with { type: 'text' }
import masquerade from './masquerade.nft' with { type: 'text' }
import sets from './sets.nft' with { type: 'text' }

/** A part of the rules in lib/nft. It is loaded with the first element that needs it. */
export type Section = 'masquerade' | 'ports' | 'firewall' | 'gateways'
/** All sections. */
export const SECTIONS: readonly Section[] = ['masquerade', 'ports', 'firewall', 'gateways']

/** The sets and maps that all sections look up. */
export const SETS: string = sets
const TEXTS: Readonly<Record<Section, string>> = { masquerade, ports, firewall, gateways }
/**
 * The file that names the bits of the packet mark for plumb, when other programs use the usual bits. Example:
 * `{ "firewall": 12, "hostPorts": 13 }`.
 */
const BITS_FILE = '/etc/plumb/mark-bits.json'
/** The usual bits. */
const BITS: Readonly<Record<'firewall' | 'hostPorts', number>> = { firewall: 12, hostPorts: 13 }

/** The sections whose rules look up these elements. */
export function sectionsOf(resources: readonly Resource[]): Section[] {
  const found = new Set(resources.flatMap((one) => (one.kind === 'element' ? (sectionOf(one.set) ?? []) : [])))
  return SECTIONS.filter((section) => found.has(section))
}

/**
 * The section whose rules look up a set. Undefined for the pairs of local subnets, because two sections look them up.
 * An attachment with such a pair also has an element of one of these sections.
 */
export function sectionOf(set: string): Section | undefined {
  if (set.startsWith('local')) return undefined
  if (set.startsWith('masq') && !set.startsWith('masqall')) return 'masquerade'
  if (set === 'gateways4') return 'gateways'
  return FIREWALL.includes(set) ? 'firewall' : 'ports'
}
const FIREWALL: readonly string[] = ['pods4', 'pods6', 'admin4', 'admin6', 'isolating', 'together', 'apart']

/**
 * The text of a section, with the bits of the packet mark for this node. Throws ValueError when the file with the bits
 * cannot be read.
 */
export function sectionText(section: Section): string {
  const text = TEXTS[section]
  if (section === 'masquerade' || section === 'gateways') return text
  const part = section === 'ports' ? 'hostPorts' : 'firewall'
  const [usual, bit] = [BITS[part], markBit(part)]
  if (bit === usual) return text
  return text.replaceAll(hex(1 << usual), hex(1 << bit)).replaceAll(hex(~(1 << usual)), hex(~(1 << bit)))
}

/**
 * The name of the set that marks a section as loaded. The name has a hash of the rules' text. So another version, or
 * other bits, give another name.
 */
export function markOf(section: Section): string {
  return `rules_${section}_${digest(SETS + sectionText(section)).slice(0, 16)}`
}

/** Whether a set is a mark of a loaded section, of this version or another. */
export function isMark(set: string): boolean {
  return set.startsWith('rules_') || set.startsWith('ruleset_')
}

/** The bit of the packet mark for a part of the rules on this node. Throws ValueError for a bad file. */
export function markBit(part: keyof typeof BITS): number {
  const text = readText(BITS_FILE)
  if (text === undefined) return BITS[part]
  const bits = { ...BITS, ...parsed(text) }
  for (const [key, bit] of Object.entries(bits)) {
    if (!Object.hasOwn(BITS, key))
      throw new ValueError(
        `Cannot read ${BITS_FILE}: unknown key ${shown(key)}; want ${Object.keys(BITS).join(' or ')}`,
      )
    if (!Number.isInteger(bit) || bit < 0 || bit > 31)
      throw new ValueError(`Cannot read ${BITS_FILE}: ${key} is ${shown(bit)}; want a bit of the packet mark, 0 to 31`)
  }
  if (bits.firewall === bits.hostPorts)
    throw new ValueError(
      `Cannot read ${BITS_FILE}: firewall and hostPorts are both ${bits.firewall}; want two different bits`,
    )
  return bits[part]
}

function parsed(text: string): Record<string, number> {
  try {
    const value = JSON.parse(text)
    if (typeof value === 'object' && value !== null && !Array.isArray(value)) return value
  } catch {
    // Refused below, like any other bad text.
  }
  throw new ValueError(
    `Cannot read ${BITS_FILE}: ${shown(text)}; want a JSON object such as { "firewall": 12, "hostPorts": 13 }`,
  )
}

function hex(bits: number): string {
  return `0x${(bits >>> 0).toString(16).padStart(8, '0')}`
}

/**
 * The chains of these sections that are missing on the node or have a wrong number of rules, one phrase each. An
 * element has no effect without the rules that look it up.
 */
export function lostRules(run: Run, sections: readonly Section[]): string[] {
  const is = run.rules?.()
  if (!is) return []
  return [...chains(sections)]
    .filter(([name, { rules }]) => (is.get(name) ?? 0) !== rules)
    .map(([name, { rules }]) => `nft chain ${name} has ${is.get(name) ?? 0} rules, want ${rules}`)
}

/**
 * Whether certainly no rule of these sections is lost. Takes a quarter of the time of `lostRules`. Also false while
 * another call loads the rules.
 */
export function isWhole(run: Run, sections: readonly Section[]): boolean {
  const is = run.uses?.()
  if (!is) return false
  for (const [name, { uses }] of chains(sections)) if (is.get(name) !== uses) return false
  return true
}

/**
 * Whether a chain of the table `inet plumb` is one of lib/nft, of this version or another. The names of these chains
 * have small letters only. The chains of networks and of an admin have other names.
 */
export function isOwnChain(name: string): boolean {
  for (const letter of name) if (letter < 'a' || letter > 'z') return false
  return name !== ''
}

/** The names of plumb's own chains in these sections. */
export function chainsOf(sections: readonly Section[]): string[] {
  return [...chains(sections).keys()]
}

function chains(sections: readonly Section[]): Map<string, { readonly rules: number; readonly uses: number }> {
  return new Map(sections.flatMap((section) => Object.entries(CHAINS[section === 'ports' ? 'host-ports' : section])))
}
