import type { Attachment } from '../cni/plugin.ts'
import { has } from '../os/exec.ts'
import { rows } from '../os/iproute2.ts'
import { isThere } from '../os/nftables.ts'
import { readText } from '../os/reading.ts'
import type { Run } from '../os/run.ts'
import { listed } from '../os/show.ts'
import type { LinkRow } from '../state/kinds/link.ts'
import { isSix } from '../text/cidr.ts'
import { type Cidr, split } from '../text/ip.ts'
import type { Owner } from '../text/owner.ts'
import type { IfName } from '../text/values.ts'
import { iptablesRules, sha512 } from './iptables.ts'

/**
 * Removes the veth pair that a reference plugin made for this attachment. This is the pod's link of this name, if it is
 * a veth and `isTheirs` accepts its other end on the host. Links of other programs stay.
 */
export async function removeForeignVeth(
  { netns, ifname }: Attachment,
  isTheirs: (host: LinkRow) => boolean,
  run: Run,
): Promise<void> {
  if (netns === undefined || run.link?.(ifname, netns) === false) return
  const inPod = await listed(['ip', '-d', '-j', 'addr', 'show', 'dev', ifname], run, netns)
  const link = rows(inPod)[0]?.[0] as LinkRow | undefined
  if (link?.linkinfo?.info_kind !== 'veth' || link.link_index === undefined) return
  const host = rows(await listed(['ip', '-d', '-j', 'addr', 'show'], run))
    .flat()
    .find((row) => (row as LinkRow).ifindex === link.link_index) as LinkRow | undefined
  if (host && /^veth[0-9a-f]{8}$/.test(host.ifname) && host.link_index === link.ifindex && isTheirs(host))
    await run(['ip', 'link', 'delete', 'dev', host.ifname], '')
}

/**
 * Removes the masquerade rules that a reference plugin made for this attachment, with the iptables or the nftables
 * backend (pkg/ip ipmasq). iptables: the chain named `CNI-` and 24 hex digits of the sha512 of network and container.
 * nftables: rules whose comment begins with two hashes.
 */
export async function removeForeignMasquerade(owner: Owner, run: Run): Promise<void> {
  if (isThere('inet', NFT_TABLE)) await removeNft(owner, run)
  const chain = masqueradeChain(owner)
  for (const family of ['ip', 'ip6'] as const) {
    if (isThere(family, 'nat', chain)) await removeIptables(`${family}tables`, chain, run)
    if (/^nat$/m.test(readText(`/proc/net/${family}_tables_names`) ?? ''))
      await removeIptables(`${family}tables-legacy`, chain, run)
  }
}

/** The missing masquerade rules of a reference plugin for these addresses of an attachment, one phrase per address. */
export async function missingForeignMasquerade(owner: Owner, addresses: readonly Cidr[], run: Run): Promise<string[]> {
  const chain = masqueradeChain(owner)
  const wanted = addresses.map((address) => ({ ip: split(address).ip, six: isSix(address) }))
  const hasTable = wanted.length > 0 && isThere('inet', NFT_TABLE)
  const table = hasTable ? await listed(['nft', 'list', 'table', 'inet', NFT_TABLE], run) : ''
  const isOwn = (line: string) => line.includes(`masquerade comment "${masqueradeNote(owner)}`)
  const checks = table.includes('goto masq_checks') ? table.split('\n').filter(isOwn) : []
  const saved = {
    4: wanted.some(({ six }) => !six) ? await iptablesRules(false, 'nat', run) : [],
    6: wanted.some(({ six }) => six) ? await iptablesRules(true, 'nat', run) : [],
  }
  return wanted.flatMap(({ ip, six }) => {
    const rules = saved[six ? 6 : 4]
    const isJumped = rules.some((rule) => rule.startsWith(`-A POSTROUTING -s ${ip}/`) && rule.endsWith(` -j ${chain}`))
    const isMasked = rules.some((rule) => rule.startsWith(`-A ${chain} `) && rule.endsWith(' -j MASQUERADE'))
    if ((isJumped && isMasked) || checks.some((line) => line.includes(` saddr ${ip} `))) return []
    const why = 'neither iptables nor nft has the rules of the reference plugin for it'
    return [`masquerade of ${ip} is missing: ${why} (chain ${chain})`]
  })
}

/**
 * The missing chains of a reference bridge that compare the sender's MAC address. `port` is the node's end of the veth,
 * and `mac` is the pod's MAC.
 */
export async function missingForeignSpoofCheck(
  { containerId, ifname }: Owner,
  port: string,
  mac: string,
  run: Run,
): Promise<string[]> {
  const chain = `cni-br-iface-${containerId}-${ifname}`
  const hasChain = isThere('bridge', 'nat', chain)
  const table = hasChain ? await listed(['nft', 'list', 'table', 'bridge', 'nat'], run) : ''
  const body = (name: string) => table.split(`chain ${name} {`)[1]?.split('}')[0] ?? ''
  const checks = body(`${chain}-mac`)
  const isHooked = body('PREROUTING').includes(`iifname "${port}" jump ${chain} `)
  const isJumped = body(chain).includes(`jump ${chain}-mac `)
  const isChecked = checks.includes(`ether saddr ${mac} return`) && /^\s*drop /m.test(checks)
  if (isHooked && isJumped && isChecked) return []
  const purpose = `by which the reference plugin checks MAC ${mac} on ${port}`
  return [`nft chain ${chain} of table bridge nat, ${purpose}, is missing or not whole`]
}

/**
 * Removes the link with which a reference plugin shapes the packets of this attachment (plugins/meta/bandwidth: `bwp`
 * and 12 hex digits of the sha512 of network and container).
 */
export async function removeForeignIfb({ network, containerId }: Owner, run: Run): Promise<void> {
  const name = foreignIfb({ network, containerId })
  if (run.link?.(name, 'host') !== false) await run(['ip', 'link', 'delete', 'dev', name], '')
}

/** The name of that link. */
export function foreignIfb({ network, containerId }: Pick<Owner, 'network' | 'containerId'>): IfName {
  return `bwp${sha512(network + containerId).slice(0, 12)}` as IfName
}

/**
 * Removes the chains with which a reference bridge compares the sender's MAC address (pkg/link spoofcheck, table bridge
 * nat). PREROUTING jumps to `cni-br-iface-` with container and interface. That chain jumps to the same name with
 * `-mac`. Removes the chains of this attachment. Without an attachment it removes the chains whose port is gone.
 */
export async function removeForeignSpoofCheck(owner: Owner | undefined, run: Run): Promise<void> {
  const own = owner && `cni-br-iface-${owner.containerId}-${owner.ifname}`
  if (!isThere('bridge', 'nat', own ?? 'PREROUTING')) return
  const table = await listed(['nft', '-a', 'list', 'table', 'bridge', 'nat'], run)
  const jumps = [...table.matchAll(/iifname "([^"]+)" jump (cni-br-iface-[^ ]+) .*# handle (\d+)$/gm)]
  const gone = jumps.filter(([, port = '', chain]) =>
    own === undefined ? run.link?.(port, 'host') === false : chain === own,
  )
  const jumped = [...(own === undefined ? [] : [own]), ...gone.map(([, , chain]) => chain)]
  const pairs = jumped.flatMap((chain) => [chain, `${chain}-mac`])
  const chains = [...new Set(pairs)].filter((chain) => table.includes(`chain ${chain} {`))
  const lines = [
    ...gone.map(([, , , handle]) => `delete rule bridge nat PREROUTING handle ${handle}`),
    ...chains.map((chain) => `flush chain bridge nat ${chain}`),
    ...chains.map((chain) => `delete chain bridge nat ${chain}`),
  ]
  if (lines.length > 0) await run(['nft', '-f', '-'], `${lines.join('\n')}\n`)
}

const NFT_TABLE = 'cni_plugins_masquerade'

function masqueradeChain({ network, containerId }: Owner): string {
  return `CNI-${sha512(network + containerId).slice(0, 24)}`
}

// The beginning of the comments of its nft rules.
function masqueradeNote({ network, containerId, ifname }: Owner): string {
  return `${sha512(network).slice(0, 16)}-${sha512(`${ifname}:${containerId}`).slice(0, 16)}`
}

async function removeNft(owner: Owner, run: Run): Promise<void> {
  const prefix = masqueradeNote(owner)
  const checks = await listed(['nft', '-a', 'list', 'chain', 'inet', NFT_TABLE, 'masq_checks'], run)
  const lines = [...checks.matchAll(/comment "([^"]*)".*# handle (\d+)$/gm)]
    .filter(([, comment = '']) => comment.startsWith(prefix))
    .map(([, , handle]) => `delete rule inet ${NFT_TABLE} masq_checks handle ${handle}\n`)
  if (lines.length > 0) await run(['nft', '-f', '-'], lines.join(''))
}

async function removeIptables(tool: string, chain: string, run: Run): Promise<void> {
  if (!has(tool)) return
  const saved = await listed([`${tool}-save`, '-t', 'nat'], run)
  const jumps = saved.split('\n').filter((rule) => rule.startsWith('-A ') && rule.includes(` -j ${chain}`))
  if (!saved.includes(`:${chain} `)) return
  const deletions = jumps.map((rule) => rule.replace('-A ', '-D '))
  const script = ['*nat', ...deletions, `-F ${chain}`, `-X ${chain}`, 'COMMIT', '']
  await run([`${tool}-restore`, '--noflush', '-w'], script.join('\n'))
}
