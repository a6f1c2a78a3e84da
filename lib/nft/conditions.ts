import type { Run } from '../os/run.ts'
import type { Chain } from '../state/kinds/chain.ts'
import { shown, ValueError } from '../text/errors.ts'
import type { NetworkName } from '../text/values.ts'

/** Reads `conditionsV4` or `conditionsV6`: words that an nft rule takes before its verdict, joined; undefined when there are none. Throws ValueError for iptables' syntax, showing nft's, and for what could end the rule. */
export function readConditions(family: 4 | 6): (value: unknown) => string | undefined {
  return (value) => {
    if (!Array.isArray(value) || value.some((word) => typeof word !== 'string')) throw new ValueError(`${shown(value)}: want a list of words such as ["${ip(family)}", "saddr", "${EXAMPLE[family]}"]`)
    const text = value.join(' ').trim()
    // Upstream's way to tell them apart: no match of nft begins so.
    if (/^[-!]/.test(text)) throw new ValueError(`${shown(value)}: this is iptables' syntax; want nft's: ${JSON.stringify(inNft(family, value as string[]))}`)
    // To nft a quote that is left open goes on in the next line.
    const isOpen = text.split('"').length % 2 === 0
    if (isOpen || !/^[\w.:/!=<>,{}()*&|^~" @-]*$/.test(text)) throw new ValueError(`${shown(value)}: want words of an nft match, with quotes in pairs, without ";", "#" or line breaks`)
    return text || undefined
  }
}

/** The chain that a network's conditional mappings go through: what meets the conditions is led to the pod, by maps of its own. */
export function conditionChain(network: NetworkName, family: 4 | 6, conditions: string): Chain {
  const to = `dnat ${ip(family)} to`
  return {
    kind: 'chain',
    ns: 'host',
    name: chainName(network, family),
    rules: [`${conditions} ${to} ${ip(family)} daddr . meta l4proto . th dport map @ports${family}atif`, `${conditions} ${to} meta l4proto . th dport map @ports${family}if`],
  }
}

/** Its name. */
export function chainName(network: NetworkName, family: 4 | 6): string {
  return `cond${family}_${Bun.hash.xxHash64(network).toString(16)}`
}

/** Removes it; one that a mapping of the network still goes through stays. */
export async function dropConditionChains(network: NetworkName, run: Run): Promise<void> {
  for (const family of [4, 6] as const) await run(['nft', '-f', '-'], `delete chain inet plumb ${chainName(network, family)}\n`)
}

const EXAMPLE = { 4: '10.0.0.0/8', 6: 'fd00::/8' } as const

function ip(family: 4 | 6): 'ip' | 'ip6' {
  return family === 4 ? 'ip' : 'ip6'
}

// The usual matches one by one; for others a form to start from.
function inNft(family: 4 | 6, words: readonly string[]): readonly string[] {
  const matches: Readonly<Record<string, readonly string[]>> = {
    '-s': [ip(family), 'saddr'],
    '--source': [ip(family), 'saddr'],
    '-d': [ip(family), 'daddr'],
    '--destination': [ip(family), 'daddr'],
    '-i': ['iifname'],
    '--in-interface': ['iifname'],
    '-p': ['meta', 'l4proto'],
    '--protocol': ['meta', 'l4proto'],
    '--sport': ['th', 'sport'],
    '--dport': ['th', 'dport'],
  }
  const out: string[] = []
  for (let i = 0; i < words.length; i++) {
    const not = words[i] === '!'
    const match = matches[words[not ? ++i : i] as string]
    const value = words[++i]
    if (!match || value === undefined) return [ip(family), 'saddr', '!=', EXAMPLE[family]]
    out.push(...match, ...(not ? ['!='] : []), value)
  }
  return out
}
