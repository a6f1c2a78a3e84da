import type { Run } from '../os/run.ts'
import type { Chain } from '../state/kinds/chain.ts'
import { digest } from '../text/digest.ts'
import { shown, ValueError } from '../text/errors.ts'
import type { NetworkName } from '../text/values.ts'

/**
 * Reads `conditionsV4` or `conditionsV6`: the words that an nft rule has before its verdict. Returns them as one text,
 * or undefined when there are none. Throws ValueError for the syntax of iptables, and shows the nft syntax. Throws
 * ValueError for text that could end the rule.
 */
export function readConditions(family: 4 | 6): (value: unknown) => string | undefined {
  return (value) => {
    if (!Array.isArray(value) || value.some((word) => typeof word !== 'string'))
      throw new ValueError(
        `${shown(value)}: want a list of words such as ["${ip(family)}", "saddr", "${EXAMPLE[family]}"]`,
      )
    const text = value.join(' ').trim()
    // No match of nft begins with `-` or `!`. Upstream tells the two syntaxes apart in the same way.
    if (/^[-!]/.test(text))
      throw new ValueError(
        `${shown(value)}: this is iptables' syntax; want nft's: ${JSON.stringify(inNft(family, value as string[]))}`,
      )
    // nft continues an open quote in the next line.
    const isOpen = text.split('"').length % 2 === 0
    if (isOpen || !/^[\w.:/!=<>,{}()*&|^~" @-]*$/.test(text))
      throw new ValueError(
        `${shown(value)}: want words of an nft match, with quotes in pairs, without ";", "#" or line breaks`,
      )
    return text || undefined
  }
}

/**
 * The chain for the conditional mappings of a network. Packets that meet the conditions go to the pod. The chain uses
 * the maps whose names end in `if`.
 */
export function conditionChain(network: NetworkName, family: 4 | 6, conditions: string): Chain {
  const to = `dnat ${ip(family)} to`
  return {
    kind: 'chain',
    ns: 'host',
    name: chainName(network, family),
    rules: [
      `${conditions} ${to} ${ip(family)} daddr . meta l4proto . th dport map @ports${family}atif`,
      `${conditions} ${to} meta l4proto . th dport map @ports${family}if`,
    ],
  }
}

/** The name of a network's chain of conditions. */
export function chainName(network: NetworkName, family: 4 | 6): string {
  return `cond${family}_${digest(network).slice(0, 16)}`
}

/**
 * Removes a network's chains of conditions. A chain stays while a mapping of the network still jumps to it, because nft
 * refuses to delete it.
 */
export async function dropConditionChains(network: NetworkName, run: Run): Promise<void> {
  for (const family of [4, 6] as const)
    await run(['nft', '-f', '-'], `delete chain inet plumb ${chainName(network, family)}\n`)
}

const EXAMPLE = { 4: '10.0.0.0/8', 6: 'fd00::/8' } as const

function ip(family: 4 | 6): 'ip' | 'ip6' {
  return family === 4 ? 'ip' : 'ip6'
}

// Translates the usual matches. For any other match it returns an example to start from.
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
