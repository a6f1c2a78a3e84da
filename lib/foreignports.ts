import { ExecError } from './errors.ts'
import { has } from './exec.ts'
import { type Ip, parseIp } from './ip.ts'
import { isThere } from './netfilter.ts'
import type { Output, Run } from './plugin.ts'
import { readText } from './reading.ts'
import type { Owner } from './state.ts'

/** What a DEL tells of an attachment: its addresses in the pod, none when they are not known, and whether it names host ports. */
export interface Told {
  readonly addresses: readonly Ip[]
  readonly isMapped: boolean
}

/** Removes the host ports that the reference portmap made for this attachment, of both its backends (plugins/meta/portmap: iptables chains `CNI-DN-` and 21 hex digits of sha512 of network and container; rules of tables cni_hostport whose comment is the container). Starts no tool when there are none; the old iptables, which only a tool can read, are looked into for a DEL that names host ports. */
export async function removeForeignPorts(owner: Owner, { addresses, isMapped }: Told, run: Run): Promise<void> {
  const chains = chainsOf(owner)
  for (const [six, family] of [
    ['', 'ip'],
    ['6', 'ip6'],
  ] as const) {
    if (isThere(family, 'cni_hostport')) await removeNft(family, owner, addresses, run)
    if (chains.some((chain) => isThere(family, 'nat', chain))) await removeIptables(`ip${six}tables`, chains, run)
    if (isMapped && /^nat$/m.test(readText(`/proc/net/ip${six}_tables_names`) ?? '')) await removeIptables(`ip${six}tables-legacy`, chains, run)
  }
}

// Neither network nor interface stands in the rules. A container's mappings by way of another network lead to another address.
async function removeNft(family: string, { containerId }: Owner, addresses: readonly Ip[], run: Run): Promise<void> {
  const lines: string[] = []
  for (const chain of ['hostports', 'hostip_hostports', 'masquerading']) {
    const { stdout } = await run(['nft', '-a', 'list', 'chain', family, 'cni_hostport', chain], '')
    for (const [, rule = '', comment, handle] of stdout.matchAll(/^(.*) comment "([^"]*)".*# handle (\d+)$/gm)) {
      const [, to] = /(?:dnat to \[?|daddr )([0-9a-f.:]*[0-9a-f])\]?(?::\d+| masquerade)/.exec(rule) ?? []
      const isOther = to !== undefined && addresses.length > 0 && !addresses.includes(parseIp(to))
      if (comment === containerId && !isOther) lines.push(`delete rule ${family} cni_hostport ${chain} handle ${handle}`)
    }
  }
  if (lines.length > 0) must(['nft', '-f', '-'], await run(['nft', '-f', '-'], `${lines.join('\n')}\n`))
}

async function removeIptables(tool: string, chains: readonly string[], run: Run): Promise<void> {
  if (!has(tool)) return
  const { stdout } = await run([`${tool}-save`, '-t', 'nat'], '')
  const there = chains.filter((chain) => stdout.includes(`:${chain} `))
  if (there.length === 0) return
  const jumps = stdout.split('\n').filter((rule) => rule.startsWith('-A ') && there.some((chain) => rule.includes(` -j ${chain}`)))
  const argv = [`${tool}-restore`, '--noflush', '-w']
  must(argv, await run(argv, ['*nat', ...jumps.map((rule) => rule.replace('-A ', '-D ')), ...there.flatMap((chain) => [`-F ${chain}`, `-X ${chain}`]), 'COMMIT', ''].join('\n')))
}

function chainsOf({ network, containerId }: Owner): string[] {
  const hash = new Bun.CryptoHasher('sha512').update(network + containerId).digest('hex')
  return ['CNI-DN-', 'CNI-SN-'].map((prefix) => prefix + hash.slice(0, 21))
}

function must(argv: readonly string[], { status, stderr }: Output): void {
  if (status !== 0) throw new ExecError(argv, undefined, stderr.trim() || `ended with status ${status}`)
}
