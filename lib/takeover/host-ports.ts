import type { OpenPort } from '../nft/host-ports.ts'
import { has } from '../os/exec.ts'
import { isThere } from '../os/nftables.ts'
import { readText } from '../os/reading.ts'
import type { Output, Run } from '../os/run.ts'
import { listed } from '../os/show.ts'
import { ExecError } from '../text/errors.ts'
import { type Ip, parseIp } from '../text/ip.ts'
import type { Owner } from '../text/owner.ts'
import { iptablesRules, sha512 } from './iptables.ts'

/**
 * The facts about an attachment that a DEL has: its addresses in the pod, empty when they are unknown, and whether the
 * configuration names host ports.
 */
export interface Mapped {
  readonly addresses: readonly Ip[]
  readonly isMapped: boolean
}

/**
 * Removes the host ports that the reference portmap made for this attachment, with either backend
 * (plugins/meta/portmap). iptables: chains named `CNI-DN-` and 21 hex digits of the sha512 of network and container.
 * nftables: rules in tables cni_hostport whose comment is the container. Starts no tool when there are none. Only a
 * tool can read legacy iptables, so it is asked when a DEL names host ports.
 */
export async function removeForeignPorts(owner: Owner, { addresses, isMapped }: Mapped, run: Run): Promise<void> {
  const chains = chainsOf(owner)
  for (const family of ['ip', 'ip6'] as const) {
    if (isThere(family, 'cni_hostport')) await removeNft(family, owner, addresses, run)
    if (chains.some((chain) => isThere(family, 'nat', chain))) await removeIptables(`${family}tables`, chains, run)
    if (isMapped && /^nat$/m.test(readText(`/proc/net/${family}_tables_names`) ?? ''))
      await removeIptables(`${family}tables-legacy`, chains, run)
  }
}

/**
 * The host ports of an attachment that neither backend of the reference portmap leads to the pod, one phrase each.
 * `pods` are the pod's addresses, at most one per family.
 */
export async function missingForeignPorts(
  owner: Owner,
  places: readonly OpenPort[],
  pods: Readonly<Partial<Record<4 | 6, Ip>>>,
  run: Run,
): Promise<string[]> {
  const [chain = ''] = chainsOf(owner)
  const missing: string[] = []
  for (const family of [4, 6] as const) {
    const pod = pods[family]
    const mine = places.filter((place) => place.family === family)
    if (pod === undefined || mine.length === 0) continue
    const rules = await iptablesRules(family === 6, 'nat', run)
    const isHooked = rules.some((rule) => rule.startsWith('-A PREROUTING ') && rule.endsWith(' -j CNI-HOSTPORT-DNAT'))
    const ip = family === 6 ? 'ip6' : 'ip'
    const hasTable = isThere(ip, 'cni_hostport')
    const table = hasTable ? await listed(['nft', 'list', 'table', ip, 'cni_hostport'], run) : ''
    const isHookedByNft = /chain prerouting \{[^}]*jump hostports_all/.test(table)
    const isOwn = (line: string) => line.endsWith(` comment "${owner.containerId}"`)
    const lines = isHookedByNft ? table.split('\n').filter(isOwn) : []
    for (const { protocol, hostPort, containerPort, ip: at } of mine) {
      const to = `${family === 6 ? `[${pod}]` : pod}:${containerPort}`
      const jumps = rules.filter((rule) => rule.startsWith(`-A CNI-HOSTPORT-DNAT -p ${protocol} `))
      const isJumped = jumps.some((rule) => rule.endsWith(` -j ${chain}`) && portsOf(rule).includes(hostPort))
      const inChain = rules.filter((rule) => rule.startsWith(`-A ${chain} `) && isOn(rule, at))
      const onPort = inChain.filter(
        (rule) => rule.includes(`-p ${protocol} `) && rule.includes(` --dport ${hostPort} `),
      )
      const isLed = onPort.some((rule) => rule.endsWith(` --to-destination ${to}`))
      const isByNft = lines.some(
        (line) => isOn(line, at) && line.includes(`${protocol} dport ${hostPort} `) && line.includes(` dnat to ${to} `),
      )
      if ((isHooked && isJumped && isLed) || isByNft) continue
      const port = `host port ${at ?? ''}${at ? ' ' : ''}${hostPort}/${protocol}`
      const why = `neither iptables nor nft has the rules of the reference plugin that lead it to ${to}`
      missing.push(`${port} is missing: ${why} (chain ${chain})`)
    }
  }
  return missing
}

// iptables prints `-d 192.0.2.1/32`, and nft `daddr 192.0.2.1 `.
function isOn(rule: string, at: Ip | undefined): boolean {
  return at === undefined || rule.includes(` -d ${at}/`) || rule.includes(` daddr ${at} `)
}

function portsOf(rule: string): number[] {
  const [, list = ''] = / --dports ([\d,]+) /.exec(rule) ?? []
  return list.split(',').map(Number)
}

// The rules name neither network nor interface. The mappings of a container in another network lead to another address.
async function removeNft(family: string, { containerId }: Owner, addresses: readonly Ip[], run: Run): Promise<void> {
  const lines: string[] = []
  for (const chain of ['hostports', 'hostip_hostports', 'masquerading']) {
    const text = await listed(['nft', '-a', 'list', 'chain', family, 'cni_hostport', chain], run)
    for (const [, rule = '', comment, handle] of text.matchAll(/^(.*) comment "([^"]*)".*# handle (\d+)$/gm)) {
      const [, to] = /(?:dnat to \[?|daddr )([0-9a-f.:]*[0-9a-f])\]?(?::\d+| masquerade)/.exec(rule) ?? []
      const isOther = to !== undefined && addresses.length > 0 && !addresses.includes(parseIp(to))
      if (comment === containerId && !isOther)
        lines.push(`delete rule ${family} cni_hostport ${chain} handle ${handle}`)
    }
  }
  if (lines.length > 0) must(['nft', '-f', '-'], await run(['nft', '-f', '-'], `${lines.join('\n')}\n`))
}

async function removeIptables(tool: string, chains: readonly string[], run: Run): Promise<void> {
  if (!has(tool)) return
  const saved = await listed([`${tool}-save`, '-t', 'nat'], run)
  const there = chains.filter((chain) => saved.includes(`:${chain} `))
  if (there.length === 0) return
  const jumps = saved
    .split('\n')
    .filter((rule) => rule.startsWith('-A ') && there.some((chain) => rule.includes(` -j ${chain}`)))
  const argv = [`${tool}-restore`, '--noflush', '-w']
  const deletions = jumps.map((rule) => rule.replace('-A ', '-D '))
  const script = ['*nat', ...deletions, ...there.flatMap((chain) => [`-F ${chain}`, `-X ${chain}`]), 'COMMIT', '']
  must(argv, await run(argv, script.join('\n')))
}

function chainsOf({ network, containerId }: Owner): string[] {
  const hash = sha512(network + containerId)
  return ['CNI-DN-', 'CNI-SN-'].map((prefix) => prefix + hash.slice(0, 21))
}

function must(argv: readonly string[], { status, stderr }: Output): void {
  if (status !== 0) throw new ExecError(argv, undefined, stderr.trim() || `ended with status ${status}`)
}
