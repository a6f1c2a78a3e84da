import { NAME, NARROW, SHAPES } from '../../agent/fast-path/table.ts'
import { run } from '../../lib/os/exec.ts'
import { contains } from '../../lib/text/cidr.ts'
import { parseCidr } from '../../lib/text/ip.ts'
import type { Sight } from './sights.ts'

/** The elements of the sets of the fast path, by set. Those of two parts have a blank between them. */
export type FastPathSets = Readonly<Record<string, ReadonlySet<string>>>

/** The sets of the fast path on this node. Undefined where there is none. Throws ExecError. */
export async function readFastPath(): Promise<FastPathSets | undefined> {
  const { status, stdout } = await run(['nft', '-j', 'list', 'table', ...NAME.split(' ')], '')
  return status === 0 ? setsOf(stdout) : undefined
}

/** Reads what `nft -j list table` prints. Pure. */
export function setsOf(text: string): FastPathSets {
  type Prefix = { readonly prefix: { readonly addr: string; readonly len: number } }
  type Part = string | { readonly concat: readonly string[] } | Prefix
  type Row = { readonly set?: { readonly name: string; readonly elem?: readonly Part[] } }
  const { nftables } = JSON.parse(text) as { readonly nftables: readonly Row[] }
  const keyOf = (part: Part) => {
    if (typeof part === 'string') return part
    return 'concat' in part ? part.concat.join(' ') : `${part.prefix.addr}/${part.prefix.len}`
  }
  const found = nftables.flatMap(({ set }) => (set ? [[set.name, new Set((set.elem ?? []).map(keyOf))] as const] : []))
  return {
    ...Object.fromEntries(Object.keys(SHAPES).map((name) => [name, new Set<string>()])),
    ...Object.fromEntries(found),
  }
}

/** Whether later packets of a connection take the fast path, by the way of its first packet through the node. Pure. */
export function takesFastPath(sights: readonly Sight[], sets: FastPathSets): boolean {
  const isForwarded = ({ place, hook, direction, family, isTunnel }: Sight) =>
    place === 'node' && hook === 'forward' && direction === 'there' && family !== 'bridge' && !isTunnel
  const forwarded = sights.find(isForwarded)
  if (forwarded?.iif === undefined || forwarded.oif === undefined) return false
  const { iif, oif, source, destination } = forwarded
  const isEnd = (link: string, ip: string) =>
    sets['outer']?.has(link) === true || sets[ip.includes(':') ? 'pods6' : 'pods4']?.has(`${link} ${ip}`) === true
  const narrow = [...(sets[NARROW] ?? [])].map(parseCidr)
  if (narrow.some((one) => contains(one, source) || contains(one, destination))) return false
  return sets['bridges']?.has(`${iif} ${oif}`) !== true && isEnd(iif, source) && isEnd(oif, destination)
}
