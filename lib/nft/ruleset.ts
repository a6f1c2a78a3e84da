import { readText } from '../os/reading.ts'
import type { Run } from '../os/run.ts'
import type { Resource } from '../state/resource.ts'
import { digest } from '../text/digest.ts'
import { shown, ValueError } from '../text/errors.ts'
import { CHAINS } from './chains.ts'
import firewall from './firewall.nft' with { type: 'text' }
import ports from './host-ports.nft' with { type: 'text' }
import masquerade from './masquerade.nft' with { type: 'text' }
import sets from './sets.nft' with { type: 'text' }

/** A part of the rules in lib/nft, loaded with the first element that needs it. */
export type Section = 'masquerade' | 'ports' | 'firewall'
/** All of them. */
export const SECTIONS: readonly Section[] = ['masquerade', 'ports', 'firewall']

/** The sets and maps that all sections look up. */
export const SETS: string = sets
const TEXTS: Readonly<Record<Section, string>> = { masquerade, ports, firewall }
/** Where a node says which bits of the packet mark plumb uses, when others use the usual ones: `{ "firewall": 12, "hostPorts": 13 }`. */
const BITS_FILE = '/etc/plumb/mark-bits.json'
/** The usual bits. */
const BITS: Readonly<Record<'firewall' | 'hostPorts', number>> = { firewall: 12, hostPorts: 13 }

/** The sections whose rules look up these elements. */
export function sectionsOf(resources: readonly Resource[]): Section[] {
  const found = new Set(resources.flatMap((one) => (one.kind === 'element' ? (sectionOf(one.set) ?? []) : [])))
  return SECTIONS.filter((section) => found.has(section))
}

/** The section whose rules look up a set; undefined for the subnets that are local to each other, which two look up: whoever adds those adds an element of one of these, too. */
export function sectionOf(set: string): Section | undefined {
  if (set.startsWith('local')) return undefined
  if (set.startsWith('masq') && !set.startsWith('masqall')) return 'masquerade'
  return FIREWALL.includes(set) ? 'firewall' : 'ports'
}
const FIREWALL: readonly string[] = ['pods4', 'pods6', 'admin4', 'admin6', 'isolating', 'together', 'apart']

/** The text of a section, with the bits of the packet mark that this node uses. Throws ValueError for a file of theirs that cannot be read. */
export function textOf(section: Section): string {
  const text = TEXTS[section]
  if (section === 'masquerade') return text
  const part = section === 'ports' ? 'hostPorts' : 'firewall'
  const [usual, bit] = [BITS[part], markBit(part)]
  if (bit === usual) return text
  return text.replaceAll(hex(1 << usual), hex(1 << bit)).replaceAll(hex(~(1 << usual)), hex(~(1 << bit)))
}

/** The set that says that a section is loaded, named after the text of its rules: another version's, or one of other bits, has another name. */
export function markOf(section: Section): string {
  return `rules_${section}_${digest(SETS + textOf(section)).slice(0, 16)}`
}

/** Whether a set is such a mark, of this version or another. */
export function isMark(set: string): boolean {
  return set.startsWith('rules_') || set.startsWith('ruleset_')
}

/** The bit of the packet mark that this node gives to a part of the rules. Throws ValueError. */
export function markBit(part: keyof typeof BITS): number {
  const text = readText(BITS_FILE)
  if (text === undefined) return BITS[part]
  const bits = { ...BITS, ...parsed(text) }
  for (const [key, bit] of Object.entries(bits)) {
    if (!Object.hasOwn(BITS, key)) throw new ValueError(`Cannot read ${BITS_FILE}: unknown key ${shown(key)}; want ${Object.keys(BITS).join(' or ')}`)
    if (!Number.isInteger(bit) || bit < 0 || bit > 31) throw new ValueError(`Cannot read ${BITS_FILE}: ${key} is ${shown(bit)}; want a bit of the packet mark, 0 to 31`)
  }
  if (bits.firewall === bits.hostPorts) throw new ValueError(`Cannot read ${BITS_FILE}: firewall and hostPorts are both ${bits.firewall}; want two different bits`)
  return bits[part]
}

function parsed(text: string): Record<string, number> {
  try {
    const value = JSON.parse(text)
    if (typeof value === 'object' && value !== null && !Array.isArray(value)) return value
  } catch {
    // Refused below, as any other text.
  }
  throw new ValueError(`Cannot read ${BITS_FILE}: ${shown(text)}; want a JSON object such as { "firewall": 12, "hostPorts": 13 }`)
}

function hex(bits: number): string {
  return `0x${(bits >>> 0).toString(16).padStart(8, '0')}`
}

/** Which chains of these sections have fewer or more rules in the node, or are missing: one phrase each. An element does nothing without the rules that look it up. */
export function lostRules(run: Run, sections: readonly Section[]): string[] {
  const is = run.rules?.()
  if (!is) return []
  return [...chains(sections)].filter(([name, { rules }]) => (is.get(name) ?? 0) !== rules).map(([name, { rules }]) => `nft chain ${name} has ${is.get(name) ?? 0} rules, want ${rules}`)
}

/** Whether nothing of them can be lost, asked in a quarter of the time. False also while another call loads them. */
export function isWhole(run: Run, sections: readonly Section[]): boolean {
  const is = run.uses?.()
  if (!is) return false
  for (const [name, { uses }] of chains(sections)) if (is.get(name) !== uses) return false
  return true
}

/** Whether a chain of our table is one of lib/nft, this version's or another's: those have names of small letters alone, which networks' chains and an admin's have not. */
export function isOwnChain(name: string): boolean {
  for (const letter of name) if (letter < 'a' || letter > 'z') return false
  return name !== ''
}

/** The names of the chains of some sections that are plumb's own. */
export function chainsOf(sections: readonly Section[]): string[] {
  return [...chains(sections).keys()]
}

function chains(sections: readonly Section[]): Map<string, { readonly rules: number; readonly uses: number }> {
  return new Map(sections.flatMap((section) => Object.entries(CHAINS[section === 'ports' ? 'host-ports' : section])))
}
