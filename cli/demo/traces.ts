import { listFiles } from '../../lib/os/reading.ts'
import { table } from '../output.ts'
import { must } from './exec.ts'
import { PLACES } from './places.ts'

/** The objects that attachments can leave on a node: for each kind the names of the objects. */
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

/** Looks for objects on the node, in the pods that exist, and on the disk. */
export async function traces(network: string, pods: readonly string[]): Promise<Traces> {
  const rows: readonly Row[] = JSON.parse(await must(['ip', '-j', 'addr']))
  const there = names('/run/netns').filter((name) => pods.includes(name))
  const inPods = await Promise.all(
    there.map(async (pod) =>
      (JSON.parse(await must(['ip', '-j', 'addr'], { ns: pod })) as Row[]).map(({ ifname }) => `${pod}: ${ifname}`),
    ),
  )
  return new Map([
    ['links of the node', rows.map(({ ifname }) => ifname)],
    // Leaves out link-local addresses, because they come and go with the carrier and with their links.
    [
      'addresses of the node',
      rows.flatMap(({ ifname, addr_info }) =>
        addr_info
          .filter(({ scope }) => scope !== 'link')
          .map(({ local, prefixlen }) => `${local}/${prefixlen} on ${ifname}`),
      ),
    ],
    ['links in pods, but for lo', inPods.flat().filter((name) => !name.endsWith(': lo'))],
    ['reservations in the pool', names(`${PLACES.pool}/${network}`).filter((name) => /^[\da-f.:]+$/.test(name))],
    ['  and their index by owner', names(`${PLACES.pool}/.plumb/${network}`).filter((name) => name !== 'stamp')],
    ['elements of nft sets and maps', await elements(network)],
    ['host ports claimed', names('/run/cni/plumb/shared/ports')],
    ['attachments remembered', names(`${PLACES.cache}/results`)],
    ['entries of the journal', names('/run/cni/plumb/attachments')],
  ])
}

/** Returns the difference of two counts. `+ x` is only in the second count, `- x` is only in the first. */
export function difference(before: Traces, after: Traces): string[] {
  return [...before].flatMap(([what, had]) => {
    const has = after.get(what) ?? []
    return [
      ...has.filter((name) => !had.includes(name)).map((name) => `+ ${name}`),
      ...had.filter((name) => !has.includes(name)).map((name) => `- ${name}`),
    ]
  })
}

/** Formats the counts as a table. Each kind has a row, each time has a column. */
export function counts(times: readonly string[], counted: readonly Traces[]): string {
  const rows = [...(counted[0] ?? [])].map(([what]) => [
    `  ${what}`,
    ...counted.map((one) => String(one.get(what)?.length)),
  ])
  return table(
    ['  counted', ...times],
    rows.map(([what = '', ...cells]) => [what, ...cells.map((cell, i) => cell.padStart(times[i]?.length ?? 0))]),
  )
}

// The comment of each nft element is its network, or its network and container. An nft that cannot list must not look
// like an nft without elements.
async function elements(network: string): Promise<string[]> {
  const rows: readonly { readonly set?: NftSet; readonly map?: NftSet }[] = JSON.parse(
    await must(['nft', '-j', 'list', 'ruleset']),
  ).nftables
  return rows.flatMap(({ set, map }) => {
    const { name = '', elem: all = [] } = set ?? map ?? {}
    // An element of a map is a pair of key and value. An element without a comment is only its value.
    const keys = all.map((one) => (Array.isArray(one) ? one[0] : one) as NftElement).map(({ elem }) => elem)
    return keys.flatMap((elem) =>
      elem?.comment?.split('/', 1)[0] === network ? `${name} ${JSON.stringify(elem.val)}` : [],
    )
  })
}

/** Returns the sorted names of the files in a folder. Returns none when the folder does not exist. */
export function names(dir: string): string[] {
  return listFiles(dir).sort()
}
