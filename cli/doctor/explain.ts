// Why packets are lost: follows one of each kind, and looks for what stands on its way.
import { KINDS, type Path, type Place } from '../../agent/doctor/promise/paths.ts'
import { isSix } from '../../lib/text/cidr.ts'
import type { Ip } from '../../lib/text/ip.ts'
import { andMore } from '../../lib/text/listing.ts'
import type { TraceReport } from '../trace.ts'
import type { Suspect } from './suspects/suspect.ts'

/** Lost packets that have one cause, as far as is known. */
export interface Loss {
  /** The one that was followed. */
  readonly path: Path
  /** All of them. */
  readonly paths: readonly Path[]
  /** The trace, or why it could not be followed. */
  readonly trace: TraceReport | string
  /** The trace of the answer, where the packet arrived and its answer did not. */
  readonly back: TraceReport | string | undefined
  readonly suspects: readonly Suspect[]
}

/** So many lost packets are followed. */
export const MOST_TRACES = 3
/** So many suspects are named, and so few have one command each. */
const [NAMED, SURE] = [6, 2]

/**
 * Chooses the lost packets to follow: the simplest path first, then the simplest one that shares neither end and family
 * with those before. Pure.
 */
export function representatives(lost: readonly Path[]): Path[] {
  const chosen: Path[] = []
  const all = lost.toSorted((a, b) => rank(a) - rank(b))
  for (const one of all) {
    if (chosen.length === MOST_TRACES) break
    if (!chosen.some((other) => isAkin(one, other))) chosen.push(one)
  }
  return chosen
}

function rank({ kind, bytes }: Path): number {
  return 2 * KINDS.indexOf(kind) + (bytes > 0 ? 1 : 0)
}

/** Whether both have an end in common, and the family. Pure. */
export function isAkin(one: Path, other: Path): boolean {
  if (isSix(one.to.ip) !== isSix(other.to.ip)) return false
  const ends = ({ from, to }: Path) => [from, to].map(({ name }) => name).filter((name) => name !== 'this node')
  return ends(one).some((name) => ends(other).includes(name))
}

/** The checks whose finding explains lost packets: all of them, those to other nodes, and large ones to other nodes. */
const [ALL, FAR, LARGE] = [
  'DR1 DR2 DR3 DR4 DR5 DR7 DR9 DR10 DR11 DR14 DR28 DR43'.split(' '),
  'DR6 DR15 DR17 DR20 DR21 DR22 DR23 DR24 DR26 DR27 DR31 DR32'.split(' '),
  'DR18 DR19 DR45 DR57'.split(' '),
]

/** The code of the finding that explains a loss, when nothing on its way does. Pure. */
export function causeOf(
  { path, paths, suspects }: Loss,
  found: readonly { readonly code: string }[],
): string | undefined {
  if (suspects.length > 0) return undefined
  const isFar = path.to.ns === undefined
  const isLarge = isFar && paths.every(({ bytes }) => bytes > 0)
  const codes = [...ALL, ...(isFar ? FAR : []), ...(isLarge ? LARGE : [])]
  return found.find(({ code }) => codes.includes(code))?.code
}

/** Says what is lost and why, as a sentence without a full stop, with the commands that undo it. Pure. */
export function lossText({ path, paths, trace, back, suspects }: Loss): {
  readonly what: string
  readonly commands: readonly string[]
} {
  const more = paths.length > 1 ? ` (and ${paths.length - 1} more of ${families(paths)})` : ''
  const size = path.bytes > 0 ? ` of ${path.bytes} bytes` : ''
  const port = path.port === undefined ? '' : ` port ${path.port}`
  const what = path.port === undefined ? `A packet${size}` : 'A connection'
  const head = `${what} from ${placeText(path.from)} to ${placeText(path.to)}${port} does not arrive${more}`
  const why = [hopText(trace, 'it'), back && hopText(back, 'its answer')].filter((one) => one !== undefined)
  const named = suspects.slice(0, NAMED).map(({ text }) => text)
  const also = named.length === 0 ? '' : `. On its way: ${named.join('; ')}${andMore(suspects.length - NAMED)}`
  const commands = suspects.length <= SURE ? suspects.flatMap(({ undo }) => undo ?? []) : []
  return { what: `${[head, ...why].join('; ')}${also}`, commands }
}

function placeText({ name, ip }: Place): string {
  return `${name} (${ip})`
}

function families(paths: readonly Path[]): string {
  const six = new Set(paths.map(({ to }) => isSix(to.ip)))
  return [...(six.has(false) ? ['IPv4'] : []), ...(six.has(true) ? ['IPv6'] : [])].join(' and ')
}

function hopText(trace: TraceReport | string, what: string): string | undefined {
  if (typeof trace === 'string') return `${what} could not be followed: ${trace}`
  const { hops, lostAt, differsAt } = trace
  const at = hops.find(({ hop }) => hop === (differsAt ?? lostAt))
  if (!at) return what === 'it' ? 'the next one arrived' : undefined
  const seen = at.seen?.says ?? ''
  const expected = at.expected?.says ?? ''
  const wanted = at.differs && expected !== '' ? `, expected "${expected}"` : ''
  return `${what} is lost at the ${at.hop}: ${seen || 'no reason is known'}${wanted}`
}

/** The addresses at the ends of paths. Pure. */
export function endsOf(paths: readonly Path[]): Ip[] {
  return [...new Set(paths.flatMap(({ from, to }) => [from.ip, to.ip]))]
}
