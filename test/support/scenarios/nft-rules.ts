// The rules of policy as nft gets them, evaluated for the first packet of a connection. What this file does not know is
// an error, and never a rule that matches nothing.
import { isSix } from '../../../lib/text/cidr.ts'
import { bitsOf, type Cidr, type Ip, split } from '../../../lib/text/ip.ts'

/** The first packet of a connection. */
export interface Packet {
  readonly source: Ip
  readonly destination: Ip
  /** nft's name: `tcp`, `udp`, `sctp`, `icmp`. */
  readonly protocol: string
  readonly port: number
}
/** A hook of the kernel with base chains. */
export type Hook = 'forward' | 'input'

interface Chain {
  readonly hook?: string
  readonly priority: number
  readonly rules: string[]
}
type Verdict = 'accept' | 'drop' | 'return'

/** A table of nft from the lines that make it. Throws RangeError for a line or a rule that it does not know. */
export class Rules {
  readonly #chains = new Map<string, Chain>()
  /** Sets and maps: the value of each element. Sets with intervals have ranges as their keys. */
  readonly #sets = new Map<string, Map<string, string>>()

  constructor(lines: readonly string[]) {
    let open: Chain | undefined
    for (const given of lines) {
      const line = given.trim()
      const [, chain] = /^chain (\w+) \{$/.exec(line) ?? []
      const [, set] = /^(?:set|map) (\w+) \{ type [^;]*; \}$/.exec(line) ?? []
      if (chain !== undefined) open = this.#chain(chain)
      else if (set !== undefined) this.#sets.set(set, new Map())
      else if (line === '}') open = undefined
      else if (open) open = this.#inChain(open, line)
      else if (!/^(table|delete table|counter|add counter) /.test(line)) this.#add(line)
    }
  }

  /** Whether the packet passes all base chains of a hook. */
  passes(hook: Hook, packet: Packet): boolean {
    const base = [...this.#chains.values()].filter((one) => one.hook === hook)
    return base.toSorted((a, b) => a.priority - b.priority).every(({ rules }) => this.#walk(rules, packet) !== 'drop')
  }

  #chain(name: string): Chain {
    const made: Chain = { priority: 0, rules: [] }
    this.#chains.set(name, made)
    return made
  }

  // The line of a hook makes a base chain of the chain.
  #inChain(open: Chain, line: string): Chain {
    const [, hook, more] = /^type filter hook (\w+) priority filter(?: \+ (\d+))?; policy accept;$/.exec(line) ?? []
    if (hook === undefined) {
      open.rules.push(line)
      return open
    }
    const based: Chain = { hook, priority: Number(more ?? 0), rules: open.rules }
    for (const [name, one] of this.#chains) if (one === open) this.#chains.set(name, based)
    return based
  }

  #add(line: string): void {
    const [, verb, name = '', rest = ''] = /^add (chain|rule|set|element) inet \w+ (\w+) ?(.*)$/.exec(line) ?? []
    if (verb === 'chain') this.#chain(name)
    else if (verb === 'rule') this.#chains.get(name)?.rules.push(rest)
    else if (verb === 'set') this.#sets.set(name, new Map())
    else if (verb !== 'element') throw new RangeError(`Cannot evaluate the line of nft: ${line}`)
    const [, elements] = /(?:elements = )?\{ ((?:(?!elements = ).)*?) \}(?: \})?$/.exec(rest) ?? []
    const isListed = verb === 'element' || rest.includes('elements = ')
    for (const one of isListed ? (elements ?? '').split(', ') : []) {
      const [key = '', value = ''] = one.split(' : ')
      this.#set(name).set(key, value)
    }
  }

  #set(name: string): Map<string, string> {
    const set = this.#sets.get(name)
    if (!set) throw new RangeError(`There is no set ${name} in the lines of nft`)
    return set
  }

  #walk(rules: readonly string[], packet: Packet): Verdict {
    for (const rule of rules) {
      const verdict = this.#rule(rule, packet)
      if (verdict !== undefined) return verdict
    }
    return 'return'
  }

  // Undefined when the next rule goes on.
  #rule(rule: string, packet: Packet): Verdict | undefined {
    for (let rest = rule; rest !== ''; ) {
      const statement = STATEMENTS.find(({ form }) => form.test(rest))
      const found = statement?.form.exec(rest)
      if (!statement || !found) throw new RangeError(`Cannot evaluate the rule of nft: ${rule}`)
      rest = rest.slice(found[0].length).trimStart()
      const [, ...words] = found
      if (statement.matches && !statement.matches(packet, words, (name) => this.#set(name))) return undefined
      const verdict = statement.verdict?.(packet, words, (name) => this.#set(name))
      if (verdict === undefined) continue
      const [, jump, chain = ''] = /^(goto|jump) (\w+)$/.exec(verdict) ?? []
      if (jump === undefined) return verdict as Verdict
      const target = this.#chains.get(chain)
      if (!target) throw new RangeError(`There is no chain ${chain} in the lines of nft`)
      const ended = this.#walk(target.rules, packet)
      if (jump === 'goto' || ended !== 'return') return ended
    }
    return undefined
  }
}

type Look = (set: string) => ReadonlyMap<string, string>
interface Statement {
  readonly form: RegExp
  matches?(packet: Packet, words: readonly string[], look: Look): boolean
  /** Undefined: the rule goes on. */
  verdict?(packet: Packet, words: readonly string[], look: Look): string | undefined
}

const never = () => false
const STATEMENTS: readonly Statement[] = [
  { form: /^(accept|drop|return|goto \w+|jump \w+)(?= |$)/, verdict: (_, [verdict]) => verdict },
  { form: /^comment "[^"]*"/ },
  { form: /^counter name \w+/ },
  // The first packet of a connection has no mark of a policy. It is not the node's own, and no neighbour discovery.
  { form: /^ct state established,related/, matches: never },
  { form: /^ct mark and 0x1000 == 0x1000/, matches: never },
  { form: /^iif lo/, matches: never },
  { form: /^ip6 hoplimit 255 icmpv6 type \{[^}]*\}/, matches: never },
  { form: /^meta nfproto ipv([46])/, matches: (packet, [family]) => familyOf(packet) === family },
  { form: /^meta l4proto (\w+)/, matches: ({ protocol }, [word]) => protocol === word },
  {
    form: /^(ip6?) ([sd])addr vmap @(\w+)/,
    matches: (packet, [word, end, map], look) => isOf(packet, word) && look(map as string).has(endOf(packet, end)),
    verdict: (packet, [, end, map], look) => look(map as string).get(endOf(packet, end)),
  },
  {
    form: /^(ip6?) saddr \. ip6? daddr @(\w+)/,
    matches: (packet, [word, set], look) =>
      isOf(packet, word) && look(set as string).has(`${packet.source} . ${packet.destination}`),
  },
  {
    form: /^(ip6?) daddr \. th dport @(\w+)/,
    matches: (packet, [word, set], look) =>
      isOf(packet, word) && look(set as string).has(`${packet.destination} . ${packet.port}`),
  },
  {
    form: /^(ip6?) ([sd])addr @(\w+)/,
    matches: (packet, [word, end, set], look) =>
      isOf(packet, word) && [...look(set as string).keys()].some((one) => isWithin(endOf(packet, end), one)),
  },
  {
    form: /^(ip6?) ([sd])addr ([\da-f:./-]+)/,
    matches: (packet, [word, end, range]) => isOf(packet, word) && isWithin(endOf(packet, end), range as string),
  },
  {
    form: /^(tcp|udp|sctp) dport @(\w+)/,
    matches: ({ protocol, port }, [word, set], look) =>
      protocol === word && [...look(set as string).keys()].some((one) => isBetween(port, one)),
  },
  {
    form: /^(tcp|udp|sctp) dport ([\d-]+)/,
    matches: ({ protocol, port }, [word, range]) => protocol === word && isBetween(port, range as string),
  },
]

function familyOf({ source }: Packet): string {
  return isSix(source) ? '6' : '4'
}

function isOf(packet: Packet, word: string | undefined): boolean {
  return (word === 'ip6') === isSix(packet.source)
}

function endOf({ source, destination }: Packet, end: string | undefined): Ip {
  return end === 's' ? source : destination
}

// An address, a network, or the first and the last address of a range.
function isWithin(ip: Ip, range: string): boolean {
  const { bits, family } = bitsOf(ip)
  const ends = range.includes('/') ? split(range as Cidr) : undefined
  const [first, last] = ends
    ? [ends.first, ends.last]
    : [range.split('-')[0], range.split('-').at(-1)].map((one) => bitsOf(one as Ip).bits)
  return isSix(range as Ip) === (family === 6) && bits >= (first as bigint) && bits <= (last as bigint)
}

function isBetween(port: number, range: string): boolean {
  const [from, to = from] = range.split('-').map(Number)
  return port >= (from as number) && port <= (to as number)
}
