import { createHmac, randomBytes } from 'node:crypto'
import { type Bits, bitsOf, format, type Ip, parseIp } from '../../lib/text/ip.ts'

/** What a name names. */
export type Kind = 'node' | 'pod' | 'namespace' | 'service'

/** Names that every cluster has. They tell nothing of this one. */
const COMMON = ['default', 'kube-system', 'kube-public', 'kube-node-lease', 'kube-flannel', 'plumb', 'kubernetes']
/** A shorter name stands for itself only between signs such as quotes and slashes. It may be a word of any text. */
const SHORT = 4
const BEFORE = '["\'/=:]'
const AFTER = '["\'/;,\\s]'

/**
 * Other addresses and names instead of the real ones, the same in all texts. Two addresses that share their first
 * bits have stand-ins that share as many, so that a route still has the addresses that it leads to. First give all
 * names to `name`.
 */
export class StandIns {
  readonly #key = randomBytes(32)
  readonly #ips = new Map<Ip, Ip>()
  readonly #macs = new Map<string, string>()
  readonly #names = new Map<string, string>()
  readonly #counts = new Map<Kind, number>()
  #pattern: RegExp | undefined

  /** Gives a name a stand-in, such as `pod-7`. */
  name(kind: Kind, name: string): void {
    if (name.trim() === '' || COMMON.includes(name) || this.#names.has(name)) return
    const count = (this.#counts.get(kind) ?? 0) + 1
    this.#counts.set(kind, count)
    this.#names.set(name, `${kind}-${count}`)
    this.#pattern = undefined
  }

  /** The text with stand-ins. */
  text(text: string): string {
    return this.#addresses(this.#hardware(this.#named(text)))
  }

  #named(text: string): string {
    if (this.#names.size === 0) return text
    this.#pattern ??= patternOf([...this.#names.keys()])
    return text.replace(
      this.#pattern,
      (found) => this.#names.get(found) ?? this.#names.get(JSON.parse(`"${found}"`)) ?? found,
    )
  }

  #hardware(text: string): string {
    return text.replace(/(?<![\da-f:-])[\da-f]{2}(?:([:-])[\da-f]{2})(?:\1[\da-f]{2}){4}(?![\da-f:-])/gi, (found) => {
      const mac = found.toLowerCase().replaceAll('-', ':')
      // Nobody's own: zero, broadcast and multicast (the lowest bit of the first byte).
      if (mac === '00:00:00:00:00:00' || Number.parseInt(mac.slice(0, 2), 16) % 2 === 1) return found
      const known = this.#macs.get(mac)
      if (known !== undefined) return known
      const digits = (this.#macs.size + 1).toString(16).padStart(10, '0')
      const standIn = `02:${digits.match(/../g)?.join(':')}`
      this.#macs.set(mac, standIn)
      return standIn
    })
  }

  #addresses(text: string): string {
    return text
      .replace(/(?<![\w.])((?:\d{1,3}\.){3}\d{1,3})(?![\w]|\.\d)(\/\d{1,2}\b)?/g, (whole, ip: string, length = '') =>
        this.#address(whole, ip, length),
      )
      .replace(
        /(?<![\w:.])([\da-f]{0,4}(?::[\da-f]{0,4}){2,8})(?![\w:]|\.\d)(\/\d{1,3}\b)?/gi,
        (whole, ip: string, length = '') => this.#address(whole, ip, length),
      )
  }

  #address(whole: string, text: string, length: string): string {
    let ip: Ip
    try {
      ip = parseIp(text)
    } catch {
      return whole
    }
    const own = bitsOf(ip)
    if (isCommon(own)) return whole
    const standIn = this.#ips.get(ip) ?? format({ family: own.family, bits: this.#bits(own) })
    this.#ips.set(ip, standIn)
    if (length === '') return standIn
    // A network has no bits after its prefix, like its stand-in.
    const host = BigInt(Math.max(0, widthOf(own) - Number(length.slice(1))))
    if ((own.bits >> host) << host !== own.bits) return `${standIn}${length}`
    const bits = (bitsOf(standIn).bits >> host) << host
    return `${format({ family: own.family, bits })}${length}`
  }

  // Each bit may be flipped by what stands before it (Xu et al., "Prefix-Preserving IP Address Anonymization"). The
  // first bits, which tell private from public addresses, stay, and the last ones, which tell a gateway. The bit after
  // the first ones is always flipped, so that no network is its own stand-in.
  #bits({ family, bits }: Bits): bigint {
    const [width, first, last] = family === 4 ? [32, 8, 8] : [128, 16, 16]
    let standIn = bits
    do {
      const before = standIn
      for (let at = first; at < width - last; at++) {
        const prefix = before >> BigInt(width - at)
        if (at === first || this.#flips(`${family} ${at} ${prefix}`)) standIn ^= 1n << BigInt(width - at - 1)
      }
      // A stand-in that is an address of its own meaning gets one itself, so that no two addresses share one.
    } while (isCommon({ family, bits: standIn }))
    return standIn
  }

  #flips(prefix: string): boolean {
    return ((createHmac('sha256', this.#key).update(prefix).digest()[0] ?? 0) & 1) === 1
  }
}

function widthOf({ family }: Bits): number {
  return family === 4 ? 32 : 128
}

// Addresses that are the same on every node, and masks.
function isCommon({ family, bits }: Bits): boolean {
  if (family === 6) return bits <= 1n || bits >> 120n === 0xffn
  const first = bits >> 24n
  const inverse = ~bits & 0xffffffffn
  const isMask = first === 255n && (inverse & (inverse + 1n)) === 0n
  return first === 0n || first === 127n || bits >> 16n === 0xa9fen || (first >= 224n && first < 240n) || isMask
}

// The longest first: a name may begin with another one.
function patternOf(names: readonly string[]): RegExp {
  const forms = [...new Set(names.flatMap((name) => [name, JSON.stringify(name).slice(1, -1)]))]
  const escaped = (name: string) => name.replace(/[.*+?^${}()|[\]\\/-]/g, '\\$&')
  const sorted = forms.sort((one, other) => other.length - one.length)
  const long = sorted.filter((name) => name.length >= SHORT).map(escaped)
  const short = sorted.filter((name) => name.length < SHORT).map(escaped)
  const parts = [
    ...(long.length > 0 ? [`(?<![A-Za-z0-9])(?:${long.join('|')})(?![A-Za-z0-9])`] : []),
    ...(short.length > 0 ? [`(?<=${BEFORE})(?:${short.join('|')})(?=${AFTER}|$)`] : []),
  ]
  return new RegExp(parts.join('|'), 'g')
}
