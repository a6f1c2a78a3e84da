import { sha512 as hash } from '@noble/hashes/sha2.js'
import { bytesToHex } from '@noble/hashes/utils.js'
import { has } from '../os/exec.ts'
import { isThere } from '../os/nftables.ts'
import { readText } from '../os/reading.ts'
import type { Run } from '../os/run.ts'
import { listed } from '../os/show.ts'

/**
 * The rules of one table of iptables, one line each, as `iptables-save` prints them. Reads nft's iptables and legacy
 * iptables. Starts no tool for a table that the kernel does not have.
 */
export async function iptablesRules(six: boolean, table: 'filter' | 'nat', run: Run): Promise<string[]> {
  const ip = six ? 'ip6' : 'ip'
  const tools = [
    ...(isThere(ip, table) ? [`${ip}tables-nft-save`] : []),
    ...(new RegExp(`^${table}$`, 'm').test(readText(`/proc/net/${ip}_tables_names`) ?? '')
      ? [`${ip}tables-legacy-save`]
      : []),
  ]
  const rules: string[] = []
  for (const tool of tools.filter(has)) {
    rules.push(...(await listed([tool, '-t', table], run)).split('\n').filter((line) => line.startsWith('-A ')))
  }
  return rules
}

/** The hexadecimal digits of SHA-512, by which the reference plugins name chains and links. */
export function sha512(text: string): string {
  return bytesToHex(hash(new TextEncoder().encode(text)))
}
