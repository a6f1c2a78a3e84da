import { has } from './exec.ts'
import { rows } from './iproute.ts'
import type { LinkRow } from './kinds/link.ts'
import { isThere } from './netfilter.ts'
import type { Attachment, Run } from './plugin.ts'
import { readText } from './reading.ts'
import type { Owner } from './state.ts'

/** Removes the veth pair that a reference plugin made for this attachment: the pod's link of its name, when that is a veth whose other end on the host `isTheirs` accepts. Nobody else's link is touched. */
export async function removeForeignVeth({ netns, ifname }: Attachment, isTheirs: (host: LinkRow) => boolean, run: Run): Promise<void> {
  if (netns === undefined || run.link?.(ifname, netns) === false) return
  const inPod = await run(['ip', '-d', '-j', 'addr', 'show', 'dev', ifname], '', netns)
  const link = rows(inPod.stdout)[0]?.[0] as LinkRow | undefined
  if (link?.linkinfo?.info_kind !== 'veth' || link.link_index === undefined) return
  const onHost = await run(['ip', '-d', '-j', 'addr', 'show'], '')
  const host = rows(onHost.stdout)
    .flat()
    .find((row) => (row as LinkRow).ifindex === link.link_index) as LinkRow | undefined
  if (host && /^veth[0-9a-f]{8}$/.test(host.ifname) && host.link_index === link.ifindex && isTheirs(host)) await run(['ip', 'link', 'delete', 'dev', host.ifname], '')
}

/** Removes the masquerade rules that a reference plugin made for this attachment, of its iptables and its nftables backend (pkg/ip ipmasq: chain `CNI-` and 24 hex digits of sha512 of network and container; rules whose comment begins with two hashes). */
export async function removeForeignMasquerade(owner: Owner, run: Run): Promise<void> {
  if (isThere('inet', 'cni_plugins_masquerade')) await removeNft(owner, run)
  const chain = `CNI-${sha512(owner.network + owner.containerId).slice(0, 24)}`
  for (const [six, family] of [
    ['', 'ip'],
    ['6', 'ip6'],
  ] as const) {
    if (isThere(family, 'nat', chain)) await removeIptables(`ip${six}tables`, chain, run)
    if (/^nat$/m.test(readText(`/proc/net/ip${six}_tables_names`) ?? '')) await removeIptables(`ip${six}tables-legacy`, chain, run)
  }
}

/** Removes the link on which a reference plugin shaped what this attachment sends (plugins/meta/bandwidth: `bwp` and 12 hex digits of sha512 of network and container). */
export async function removeForeignIfb({ network, containerId }: Owner, run: Run): Promise<void> {
  const name = `bwp${sha512(network + containerId).slice(0, 12)}`
  if (run.link?.(name, 'host') !== false) await run(['ip', 'link', 'delete', 'dev', name], '')
}

/** Removes the chains in which a reference bridge compares addresses of senders (pkg/link spoofcheck: table bridge nat; PREROUTING jumps to `cni-br-iface-` with container and interface, that to the same with `-mac`): those of this attachment, or without one those whose port is gone. */
export async function removeForeignSpoofCheck(owner: Owner | undefined, run: Run): Promise<void> {
  const own = owner && `cni-br-iface-${owner.containerId}-${owner.ifname}`
  if (!isThere('bridge', 'nat', own ?? 'PREROUTING')) return
  const { stdout } = await run(['nft', '-a', 'list', 'table', 'bridge', 'nat'], '')
  const jumps = [...stdout.matchAll(/iifname "([^"]+)" jump (cni-br-iface-[^ ]+) .*# handle (\d+)$/gm)]
  const gone = jumps.filter(([, port = '', chain]) => (own === undefined ? run.link?.(port, 'host') === false : chain === own))
  const chains = new Set([...(own === undefined ? [] : [own]), ...gone.map(([, , chain]) => chain)].flatMap((chain) => [chain, `${chain}-mac`]).filter((chain) => stdout.includes(`chain ${chain} {`)))
  const lines = [...gone.map(([, , , handle]) => `delete rule bridge nat PREROUTING handle ${handle}`), ...[...chains].map((chain) => `flush chain bridge nat ${chain}`), ...[...chains].map((chain) => `delete chain bridge nat ${chain}`)]
  if (lines.length > 0) await run(['nft', '-f', '-'], `${lines.join('\n')}\n`)
}

async function removeNft({ network, containerId, ifname }: Owner, run: Run): Promise<void> {
  const prefix = `${sha512(network).slice(0, 16)}-${sha512(`${ifname}:${containerId}`).slice(0, 16)}`
  const { stdout } = await run(['nft', '-a', 'list', 'chain', 'inet', 'cni_plugins_masquerade', 'masq_checks'], '')
  const handles = [...stdout.matchAll(/comment "([^"]*)".*# handle (\d+)$/gm)].filter(([, comment = '']) => comment.startsWith(prefix)).map(([, , handle]) => handle)
  if (handles.length > 0) await run(['nft', '-f', '-'], handles.map((handle) => `delete rule inet cni_plugins_masquerade masq_checks handle ${handle}\n`).join(''))
}

async function removeIptables(tool: string, chain: string, run: Run): Promise<void> {
  if (!has(tool)) return
  const { stdout } = await run([`${tool}-save`, '-t', 'nat'], '')
  const jumps = stdout.split('\n').filter((rule) => rule.startsWith('-A ') && rule.includes(` -j ${chain}`))
  if (!stdout.includes(`:${chain} `)) return
  const script = ['*nat', ...jumps.map((rule) => rule.replace('-A ', '-D ')), `-F ${chain}`, `-X ${chain}`, 'COMMIT', '']
  await run([`${tool}-restore`, '--noflush', '-w'], script.join('\n'))
}

function sha512(text: string): string {
  return new Bun.CryptoHasher('sha512').update(text).digest('hex')
}
