import { readdirSync } from 'node:fs'
import { table } from '../output.ts'
import { must } from './exec.ts'
import { PLACES } from './places.ts'

/** What attachments can leave on a node, by what it is: the names of each that there are. */
export type Traces = ReadonlyMap<string, readonly string[]>
interface Row {
  readonly ifname: string
  readonly addr_info: readonly { readonly local: string; readonly prefixlen: number; readonly scope: string }[]
}
interface NftElement {
  readonly elem?: { readonly val: unknown; readonly comment?: string }
}
interface NftSet {
  readonly name: string
  readonly elem?: readonly unknown[]
}

/** Looks at the node, at those of the pods that there are, and at the disk. */
export async function traces(network: string, pods: readonly string[]): Promise<Traces> {
  const rows: readonly Row[] = JSON.parse(await must(['ip', '-j', 'addr']))
  const there = names('/run/netns').filter((name) => pods.includes(name))
  const inPods = await Promise.all(there.map(async (pod) => (JSON.parse(await must(['ip', '-j', 'addr'], { ns: pod })) as Row[]).map(({ ifname }) => `${pod}: ${ifname}`)))
  return new Map([
    ['links of the node', rows.map(({ ifname }) => ifname)],
    // Link-local addresses come and go with the carrier, and with their links.
    ['addresses of the node', rows.flatMap(({ ifname, addr_info }) => addr_info.filter(({ scope }) => scope !== 'link').map(({ local, prefixlen }) => `${local}/${prefixlen} on ${ifname}`))],
    ['links in pods, but for lo', inPods.flat().filter((name) => !name.endsWith(': lo'))],
    ['reservations in the pool', names(`${PLACES.pool}/${network}`).filter((name) => /^[\da-f.:]+$/.test(name))],
    ['  and their index by owner', names(`${PLACES.pool}/.plumb/${network}`).filter((name) => name !== 'stamp')],
    ['elements of nft sets and maps', await elements(network)],
    ['host ports claimed', names('/run/cni/plumb/shared/ports')],
    ['attachments remembered', names(`${PLACES.cache}/results`)],
    ['entries of the journal', names('/run/cni/plumb/attachments')],
  ])
}

/** What the second has and the first has not, or the other way round, as `- x` and `+ x`. */
export function difference(before: Traces, after: Traces): string[] {
  return [...before].flatMap(([what, had]) => {
    const has = after.get(what) ?? []
    return [...has.filter((name) => !had.includes(name)).map((name) => `+ ${name}`), ...had.filter((name) => !has.includes(name)).map((name) => `- ${name}`)]
  })
}

/** What was counted as a table: a row for each kind, a column for each time. */
export function counts(times: readonly string[], counted: readonly Traces[]): string {
  const rows = [...(counted[0] ?? [])].map(([what]) => [`  ${what}`, ...counted.map((one) => String(one.get(what)?.length))])
  return table(
    ['  counted', ...times],
    rows.map(([what = '', ...cells]) => [what, ...cells.map((cell, i) => cell.padStart(times[i]?.length ?? 0))]),
  )
}

// Each element has its network as comment, or network and container. An nft that cannot list must not pass for one that has nothing.
async function elements(network: string): Promise<string[]> {
  const rows: readonly { readonly set?: NftSet; readonly map?: NftSet }[] = JSON.parse(await must(['nft', '-j', 'list', 'ruleset'])).nftables
  return rows.flatMap(({ set, map }) => {
    const { name = '', elem: all = [] } = set ?? map ?? {}
    // Of a map: key and value. One without a comment is its value alone.
    const keys = all.map((one) => (Array.isArray(one) ? one[0] : one) as NftElement).map(({ elem }) => elem)
    return keys.flatMap((elem) => (elem?.comment?.split('/', 1)[0] === network ? `${name} ${JSON.stringify(elem.val)}` : []))
  })
}

/** The files of a folder in order; none when there is no folder. */
export function names(dir: string): string[] {
  try {
    return readdirSync(dir).sort()
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code === 'ENOENT') return []
    throw cause
  }
}
