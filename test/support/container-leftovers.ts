import { existsSync, readdirSync } from 'node:fs'
import type { Namespace, Row } from './harness.ts'
import { mentions } from './network.ts'

/** The ids that podman, docker and containerd give to containers. */
const ID = /\b[0-9a-f]{64}\b/
/** What the kernel forgets by itself, and the marks of the rules. */
const SHARED = /^left[46]$|^given$|^rules_/

/**
 * What the containers of a runtime have on a node: links of pairs but those named, and those that shape, namespaces,
 * nft elements, files that tell of them.
 */
export async function remains(node: Namespace, ...own: readonly string[]): Promise<string[]> {
  const links = (await node.json('link')).flatMap(({ ifname, linkinfo }) =>
    /^(veth|ifb)$/.test(linkinfo?.info_kind) && !own.includes(ifname) ? [ifname] : [],
  )
  const namespaces = existsSync('/run/netns')
    ? readdirSync('/run/netns').filter((name) => /^(cni|netns)-/.test(name))
    : []
  const { stdout } = await node.exec(['nft', '--json', 'list', 'table', 'inet', 'plumb'])
  const sets: Row[] =
    stdout === '' ? [] : JSON.parse(stdout).nftables.flatMap((one: Row) => one['set'] ?? one['map'] ?? [])
  const elements = sets
    .filter(({ name, elem = [] }) => elem.length > 0 && !SHARED.test(name))
    .map(({ name, elem }) => `${name} ${JSON.stringify(elem)}`)
  return [...links, ...namespaces, ...elements, ...mentions(ID, '/run/cni', '/var/lib/cni')]
}
