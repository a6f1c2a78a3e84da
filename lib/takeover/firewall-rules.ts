import { has } from '../os/exec.ts'
import { isThere } from '../os/nftables.ts'
import { readText } from '../os/reading.ts'
import type { Run } from '../os/run.ts'
import { listed } from '../os/show.ts'
import { hostCidr, isSix } from '../text/cidr.ts'
import { ExecError } from '../text/errors.ts'
import { type Cidr, split } from '../text/ip.ts'
import { iptablesRules } from './iptables.ts'

/**
 * Removes the rules that the reference firewall made for these addresses (plugins/meta/firewall: two rules per address
 * in the iptables chain CNI-FORWARD, which name only the address). Starts no tool when that chain does not exist. Only
 * a tool can read legacy iptables, so it is asked where legacy iptables is in use. Throws ExecError.
 */
export async function removeForeignRules(addresses: readonly Cidr[], run: Run): Promise<void> {
  for (const six of [false, true]) {
    const own = addresses.filter((address) => isSix(address) === six).map((address) => hostCidr(split(address).ip))
    if (own.length === 0) continue
    const ip = six ? 'ip6' : 'ip'
    if (isThere(ip, 'filter', 'CNI-FORWARD')) await removeOf(`${ip}tables-nft`, own, run)
    if (/^filter$/m.test(readText(`/proc/net/${ip}_tables_names`) ?? '')) await removeOf(`${ip}tables-legacy`, own, run)
  }
}

/**
 * The missing rules of the reference firewall. One phrase per address whose packets do not pass, and one per family in
 * which the policy of a bridge is not enforced.
 */
export async function missingForeignRules(
  addresses: readonly Cidr[],
  bridge: { readonly name: string; readonly isApart: boolean } | undefined,
  run: Run,
): Promise<string[]> {
  const missing: string[] = []
  for (const six of [false, true]) {
    const own = addresses.filter((address) => isSix(address) === six).map((address) => hostCidr(split(address).ip))
    if (own.length === 0) continue
    const rules = await iptablesRules(six, 'filter', run)
    const has = (start: string, end: string) =>
      rules.some((rule) => rule.startsWith(start) && rule.endsWith(` -j ${end}`))
    const tool = six ? 'ip6tables' : 'iptables'
    const isHooked = has('-A FORWARD ', 'CNI-FORWARD')
    const isAccepted = (one: Cidr) =>
      has(`-A CNI-FORWARD -s ${one} `, 'ACCEPT') && has(`-A CNI-FORWARD -d ${one} `, 'ACCEPT')
    for (const one of own)
      if (!isHooked || !isAccepted(one))
        missing.push(`rules of the reference plugin for ${one} in chain CNI-FORWARD of ${tool} are missing`)
    if (!bridge) continue
    const { name, isApart } = bridge
    const [first, second] = ['CNI-ISOLATION-STAGE-1', 'CNI-ISOLATION-STAGE-2']
    const isIsolating = has('-A FORWARD ', first) && has(`-A ${first} -i ${name} ! -o ${name} `, second)
    const isDropping = has(`-A ${second} -o ${name} `, 'DROP')
    const isDividing = !isApart || has(`-A ${first} -i ${name} -o ${name} `, 'DROP')
    if (!isIsolating || !isDropping || !isDividing)
      missing.push(`rules of the reference plugin for bridge ${name} in chain ${first} of ${tool} are missing`)
  }
  return missing
}

async function removeOf(tool: string, addresses: readonly Cidr[], run: Run): Promise<void> {
  if (!has(`${tool}-save`)) return
  const saved = await listed([`${tool}-save`, '-t', 'filter'], run)
  const isTheirs = (rule: string) =>
    addresses.some((one) => rule.includes(`-s ${one} -j ACCEPT`) || rule.includes(`-d ${one} -m conntrack `))
  const rules = saved.split('\n').filter((rule) => rule.startsWith('-A CNI-FORWARD ') && isTheirs(rule))
  if (rules.length === 0) return
  const argv = [`${tool}-restore`, '--noflush', '--wait']
  const script = ['*filter', ...rules.map((rule) => rule.replace('-A ', '-D ')), 'COMMIT', '']
  const { status, stderr } = await run(argv, script.join('\n'))
  if (status !== 0) throw new ExecError(argv, undefined, stderr.trim() || `ended with status ${status}`)
}
