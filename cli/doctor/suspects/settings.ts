import { shellWord } from '../../../agent/doctor/shell.ts'
import { readText } from '../../../lib/os/reading.ts'
import type { Run } from '../../../lib/os/run.ts'
import { isSix } from '../../../lib/text/cidr.ts'
import type { Scope, Suspect } from './suspect.ts'

// Settings of links that stop packets, and the value that lets them pass.
const SETTINGS = [
  ['ipv4', 'forwarding', (value: string) => value !== '0', '1'],
  ['ipv6', 'forwarding', (value: string) => value !== '0', '1'],
  ['ipv6', 'disable_ipv6', (value: string) => value === '0', '0'],
  ['ipv4', 'arp_ignore', (value: string) => Number(value) < 3, '0'],
  ['ipv4', 'rp_filter', (value: string) => value !== '1', '2'],
  ['ipv4', 'arp_filter', (value: string) => value === '0', '0'],
] as const

/** Settings of links that stop packets. Throws Error. */
export async function readSettings(run: Run, { ns, links, ports, ips, isPod }: Scope): Promise<Suspect[]> {
  const found: Suspect[] = []
  const names = [...new Set(['default', 'all', ...links, ...ports])]
  const paths = names.flatMap((name) => SETTINGS.map(([family, key]) => `/proc/sys/net/${family}/conf/${name}/${key}`))
  const values = ns === 'host' ? new Map(paths.map((path) => [path, readText(path)?.trim()])) : await readIn(run, paths)
  for (const name of names)
    for (const [family, key, isFine, fine] of SETTINGS) {
      if (isPod && key === 'forwarding') continue
      // In IPv6, the setting of all links decides.
      if (family === 'ipv6' && key === 'forwarding' && name !== 'all') continue
      if (!ips.some((ip) => isSix(ip) === (family === 'ipv6'))) continue
      // A port of a bridge has no IPv6 of its own: plumb switches it off there.
      if (key === 'disable_ipv6' && ports.includes(name)) continue
      const value = values.get(`/proc/sys/net/${family}/conf/${name}/${key}`)
      // A distribution's choice for all links is none of this fault.
      const isOfAll = key !== 'forwarding' && value === values.get(`/proc/sys/net/${family}/conf/default/${key}`)
      if (value === undefined || value === '' || isFine(value) || isOfAll) continue
      const setting = `net.${family}.conf.${name}.${key}`
      const path = `/proc/sys/net/${family}/conf/${name}/${key}`
      found.push({ text: `the setting ${setting} is ${value}`, undo: `echo ${fine} >${shellWord(path)}` })
    }
  return found
}

async function readIn(run: Run, paths: readonly string[]): Promise<Map<string, string>> {
  const { stdout } = await run(['sh', '-c', 'for f; do echo "$f=$(cat "$f" 2>/dev/null)"; done', 'sh', ...paths], '')
  return new Map(stdout.split('\n').map((line) => line.split('=', 2) as [string, string]))
}
