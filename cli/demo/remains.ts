import { NODES } from './cluster.ts'
import { must } from './exec.ts'
import { PLACES, runOf } from './places.ts'
import type { Store } from './stores.ts'
import { names, type Traces } from './traces.ts'

// biome-ignore lint/suspicious/noExplicitAny: rows of iproute2 and nft, looked at key by key
type Row = Record<string, any>
/** One kind of object: the command that lists the objects, and how a row gives their names. */
interface Kind {
  readonly what: string
  readonly argv: readonly string[]
  name(row: Row): string | readonly string[] | undefined
}

const KINDS: readonly Kind[] = [
  { what: 'links of the nodes', argv: ['ip', '-j', 'link'], name: ({ ifname }) => ifname },
  // Leaves out link-local addresses, because they come and go with their links.
  {
    what: 'addresses of the nodes',
    argv: ['ip', '-j', 'addr'],
    name: ({ ifname, addr_info }) =>
      addr_info
        .filter(({ scope }: Row) => scope !== 'link')
        .map(({ local, prefixlen }: Row) => `${local}/${prefixlen} on ${ifname}`),
  },
  { what: "routes, but for the kernel's", argv: ['ip', '-j', 'route'], name: route },
  { what: "routes, but for the kernel's", argv: ['ip', '-6', '-j', 'route'], name: route },
  { what: 'nexthops', argv: ['ip', '-j', 'nexthop'], name: ({ id }) => `nexthop ${id}` },
  {
    what: 'neighbours and forwarding entries',
    argv: ['ip', '-j', 'neigh', 'show', 'nud', 'permanent'],
    name: ({ dst, dev }) => `neighbour ${dst} on ${dev}`,
  },
  {
    what: 'neighbours and forwarding entries',
    argv: ['bridge', '-j', 'fdb'],
    name: ({ mac, dst, ifname }) => (dst ? `${mac} to ${dst} on ${ifname}` : undefined),
  },
  {
    what: 'nft tables',
    argv: ['nft', '-j', 'list', 'tables'],
    name: ({ table }) => table && `table ${table.family} ${table.name}`,
  },
]

// Folders below the node's /run. Lock files and the last reserved address stay, as in host-local's pools.
const DIRS = [
  'flannel',
  'plumb',
  'plumb/state',
  'cni/plumb/attachments',
  ...[`${PLACES.cache}/results`, `${PLACES.pool}/cbr0`, PLACES.flannel].map((path) => path.slice('/run/'.length)),
]

/** Returns everything that agents and pods can leave on the nodes and in the store. Throws Error. */
export async function remains(store: Store): Promise<Traces> {
  const found = new Map<string, string[]>()
  const note = (what: string, seen: readonly string[]) => found.set(what, [...(found.get(what) ?? []), ...seen])
  const listed = await Promise.all(
    KINDS.flatMap((kind) => NODES.map(async ({ node }) => ({ kind, node, rows: await rows(kind.argv, node) }))),
  )
  for (const { kind, node, rows } of listed)
    note(
      kind.what,
      rows.flatMap((row) => kind.name(row) ?? []).map((name) => `${node}: ${name}`),
    )
  note(
    'files of agents and plugins',
    NODES.flatMap(({ node }) => files(node)),
  )
  const { leases, others } = await store.leases()
  note('leases in the store', leases)
  note('records of nodes beside them', others)
  return found
}

function files(node: string): string[] {
  return DIRS.flatMap((dir) =>
    names(`${runOf(node)}/${dir}`)
      .filter((name) => !/(^|\.)lock$|^state$|^last_reserved_ip/.test(name))
      .map((name) => `${node}: ${dir}/${name}`),
  )
}

function route({ dst, gateway, nhid, protocol, dev }: Row): string | undefined {
  return protocol === 'kernel' ? undefined : `route ${dst} ${gateway ?? nhid ?? ''} on ${dev}`
}

// For some kinds of objects iproute2 prints nothing at all instead of an empty list.
async function rows(argv: readonly string[], node: string): Promise<readonly Row[]> {
  const all = JSON.parse((await must(argv, { node })) || '[]')
  return Array.isArray(all) ? all : all.nftables
}
