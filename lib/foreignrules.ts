import { hostCidr, isSix } from './cidr.ts'
import { ExecError } from './errors.ts'
import { has } from './exec.ts'
import { type Cidr, split } from './ip.ts'
import { isThere } from './netfilter.ts'
import type { Run } from './plugin.ts'
import { readText } from './reading.ts'

/** Removes the rules that the reference firewall made for these addresses (plugins/meta/firewall: in chain CNI-FORWARD of iptables two per address, which name nothing else). Starts no tool where there is no such chain; the old iptables, which only a tool can read, are looked into where they are in use. Throws ExecError. */
export async function removeForeignRules(addresses: readonly Cidr[], run: Run): Promise<void> {
  for (const six of [false, true]) {
    const own = addresses.filter((address) => isSix(address) === six).map((address) => hostCidr(split(address).ip))
    if (own.length === 0) continue
    const ip = six ? 'ip6' : 'ip'
    if (isThere(ip, 'filter', 'CNI-FORWARD')) await removeOf(`${ip}tables-nft`, own, run)
    if (/^filter$/m.test(readText(`/proc/net/${ip}_tables_names`) ?? '')) await removeOf(`${ip}tables-legacy`, own, run)
  }
}

async function removeOf(tool: string, addresses: readonly Cidr[], run: Run): Promise<void> {
  if (!has(`${tool}-save`)) return
  const { stdout } = await run([`${tool}-save`, '-t', 'filter'], '')
  const rules = stdout.split('\n').filter((rule) => rule.startsWith('-A CNI-FORWARD ') && addresses.some((address) => rule.includes(`-s ${address} -j ACCEPT`) || rule.includes(`-d ${address} -m conntrack `)))
  if (rules.length === 0) return
  const argv = [`${tool}-restore`, '--noflush', '--wait']
  const { status, stderr } = await run(argv, ['*filter', ...rules.map((rule) => rule.replace('-A ', '-D ')), 'COMMIT', ''].join('\n'))
  if (status !== 0) throw new ExecError(argv, undefined, stderr.trim() || `ended with status ${status}`)
}
