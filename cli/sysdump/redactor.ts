/** A number, a time, an address or a path: values that stand in many texts, whatever the name before them. */
const ORDINARY = /^\d+[a-z]{0,2}$|^(?=.*[.:])[\da-f.:/,[\]-]+$|^\/[\w./-]+$/i
/** What the line above a section begins with. */
export const SECTION = '==== '
const SECTIONS = new RegExp(`^(?=${SECTION})`, 'm')
/** Values of this length and more are removed from all texts, in characters. */
const KNOWN_LENGTH = 8
/** So many of them. Each costs a search through all texts. */
const KNOWN_COUNT = 200
/** A longer value is no password, but the rest of a file. */
const LONGEST_VALUE = 65_536
/** So deep base64 is looked into. */
const DEPTH = 2
/** The annotations that the archive has: those of flannel and of plumb. */
const OURS = /^([\w.-]*flannel[\w.-]*|plumb[\w.-]*|[\w.-]*\.plumb\.[\w.-]*)\//
const ENVIRONMENT = /^(env|environ|environment)$/i

type Entry = readonly [key: string, value: unknown]

/**
 * Removes secrets from texts and from JSON. It knows them by what stands before them, by their form, and, once met, by
 * their value. So first give all texts to `text` and `json`, then each result to `known`.
 */
export class Redactor {
  readonly #known = new Set<string>()

  /** Notes a secret that may stand in any text. */
  learn(value: string): void {
    const secret = value.trim()
    if (secret.length < KNOWN_LENGTH || secret.length > LONGEST_VALUE || secret === REMOVED) return
    if (this.#known.size < KNOWN_COUNT) this.#known.add(secret)
  }

  /** Removes secrets from a value of JSON. Its structure stays. */
  json(value: unknown, depth = DEPTH): unknown {
    if (typeof value === 'string') return this.text(value, depth)
    if (Array.isArray(value)) return this.#list(value, depth)
    if (typeof value !== 'object' || value === null) return value
    const { name } = value as { readonly name?: unknown }
    const isNamed = typeof name === 'string' && isSensitive(name)
    const entries = Object.entries(value).flatMap(([key, one]): Entry[] => {
      const shown = this.text(key, depth)
      if (key === 'managedFields') return []
      if (isSensitive(key) || (isNamed && key === 'value')) return [[shown, this.#removed(one)]]
      if (ENVIRONMENT.test(key)) return [[shown, this.#environment(one, depth)]]
      if (key === 'annotations' && isObject(one)) return [[shown, this.json(onlyOurs(one), depth)]]
      return [[shown, this.json(one, depth)]]
    })
    return Object.fromEntries(entries)
  }

  /**
   * Removes secrets from a file: JSON, or sections below a line of their own (`SECTION`), each JSON or a text, which may
   * have JSON in its lines.
   */
  file(text: string): string {
    const sections = text.split(SECTIONS)
    return sections.length > 1 ? sections.map((one) => this.#section(one)).join('') : this.#document(text)
  }

  #section(text: string): string {
    const end = text.startsWith(SECTION) ? lineEnd(text, 0) + 1 : 0
    return this.text(text.slice(0, end)) + this.#document(text.slice(end))
  }

  #document(text: string): string {
    const value = objectOf(text)
    if (value !== undefined) return linesOf(this.json(value))
    const lines = text.replace(/\{".*\}/g, (found) => {
      const inner = objectOf(found)
      return inner === undefined ? found : JSON.stringify(this.json(inner))
    })
    return this.text(lines)
  }

  /** Removes secrets from a text of any form. */
  text(text: string, depth = DEPTH): string {
    if (text.length < 4) return text
    const plain = this.#words(this.#flags(this.#pairs(this.#blocks(text))))
    return this.#base64(this.#keys(this.#tokens(this.#urls(plain))), depth)
  }

  /** Removes the secrets that were met in any text, and what is base64 of them. */
  known(text: string): string {
    let left = text
    const encoded = new Set<string>()
    // The longest first: it may have another one within.
    for (const secret of [...this.#known].sort((one, other) => other.length - one.length)) {
      for (const form of formsOf(secret)) if (left.includes(form)) left = left.replaceAll(form, REMOVED)
      for (const form of encodings(secret)) if (left.includes(form)) encoded.add(form)
    }
    if (encoded.size === 0) return left
    return left.replace(/[A-Za-z0-9+/_-]{8,}={0,2}/g, (run) =>
      [...encoded].some((form) => run.includes(form)) ? REMOVED : run,
    )
  }

  #list(values: readonly unknown[], depth: number): unknown[] {
    return values.map((value, i) => {
      const before = values[i - 1]
      const isValue = typeof before === 'string' && typeof value === 'string'
      if (isValue && /^--?[\w.-]+$/.test(before) && isSensitive(before)) return this.#removed(value)
      if (isValue && /^(-u|--user)$/.test(before) && value.includes(':')) return this.#removed(value)
      return this.json(value, depth)
    })
  }

  // The value of a variable may be the name of a node, so it is a secret to remember only by the variable's name.
  #environment(value: unknown, depth: number): unknown {
    if (Array.isArray(value)) return value.map((one) => this.#environment(one, depth))
    if (typeof value === 'string') {
      const [name = '', ...rest] = value.split('=')
      return rest.length === 0 ? this.text(value, depth) : `${name}=${this.#variable(name, rest.join('='))}`
    }
    if (!isObject(value)) return value
    if (typeof value['name'] === 'string' && 'value' in value)
      return { ...value, value: this.#variable(value['name'], value['value']) }
    if (!Object.values(value).every((one) => typeof one === 'string')) return this.json(value, depth)
    return Object.fromEntries(Object.entries(value).map(([name, one]) => [name, this.#variable(name, one)]))
  }

  #variable(name: string, value: unknown): unknown {
    return isSensitive(name) ? this.#removed(value) : value === '' ? value : REMOVED
  }

  #removed(value: unknown): unknown {
    if (value === null || typeof value === 'boolean' || value === '') return value
    this.#meet(value)
    return REMOVED
  }

  // A value that is met beside the name of a secret. A word of a language could be a part of many texts.
  #meet(value: unknown): void {
    if (typeof value === 'object' && value !== null) for (const one of Object.values(value)) this.#meet(one)
    if (typeof value !== 'string' || !looksSecret(value) || ORDINARY.test(value)) return
    this.learn(value)
    const decoded = decodedText(value)
    if (decoded !== undefined) this.learn(decoded)
  }

  // Keys in PEM. In a log, each line of a key may begin with a time.
  #blocks(text: string): string {
    if (!text.includes('PRIVATE KEY')) return text
    return text.replace(
      /-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----(?:[\s\S]{0,16384}?-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----|[\s\S]{0,16384})/g,
      REMOVED,
    )
  }

  // NAME=VALUE and NAME: VALUE, as in environments, YAML, INI, JSON, JSON within JSON, headers and queries.
  #pairs(text: string): string {
    const pair = /([\w.-]{2,96})(\\{0,8}["']?)[ \t]*(?:=>|:=|=|:)/g
    let [out, from] = ['', 0]
    for (let found = pair.exec(text); found; found = pair.exec(text)) {
      const [whole, name = ''] = found
      if (!isSensitive(name)) continue
      const { start, end } = valueAt(text, found.index, found.index + whole.length)
      if (end <= start) continue
      this.#meet(text.slice(start, end).replace(/^\\*["']|\\*["']$/g, ''))
      const [quote = ''] = /^\\{0,8}["']/.exec(text.slice(start, start + 9)) ?? []
      out += `${text.slice(from, start)}${quote}${REMOVED}${quote}`
      from = end
      pair.lastIndex = end
    }
    return out + text.slice(from)
  }

  // --password VALUE, and -u USER:PASSWORD.
  #flags(text: string): string {
    return text.replace(
      /(?<![\w-])(--?[\w.-]{1,96})([ \t\0]+)("[^"\n]*"|'[^'\n]*'|[^\s\0]+)/g,
      (whole, flag: string, space: string, value: string) => {
        const isUser = /^(-u|--user)$/.test(flag) && value.includes(':')
        if (!isUser && !isSensitive(flag)) return whole
        this.#meet(value.replace(/^["']|["']$/g, ''))
        return `${flag}${space}${REMOVED}`
      },
    )
  }

  // `password "x";` of BIRD, `password x9` in a sentence, `Bearer x`.
  #words(text: string): string {
    return text.replace(
      /(?<![\w-])([\w-]{0,32}(?:password|passwd|passphrase|psk|secret|token|preshared-key|private-key)|bearer|basic|digest|negotiate)([ \t]+(?:is[ \t]+)?)("[^"\n]*"|'[^'\n]*'|[^\s\0]{4,})/gi,
      (whole, word: string, space: string, value: string) => {
        if (!/^["']/.test(value) && !looksSecret(value.replace(/[.,:;]+$/, ''))) return whole
        this.#meet(value.replace(/^["']|["',;]+$/g, ''))
        return `${word}${space}${REMOVED}`
      },
    )
  }

  // The user's part of a URL. It ends at the last @.
  #urls(text: string): string {
    return text.replace(/(\b[a-z][a-z0-9+.-]{1,20}:\/\/)([^\s"'<>\0]{1,512})@/gi, (_, scheme: string, user: string) => {
      const colon = user.indexOf(':')
      this.#meet(colon < 0 ? user : user.slice(colon + 1))
      return `${scheme}${REMOVED}@`
    })
  }

  // Tokens that their form gives away: JWT, bootstrap tokens of Kubernetes, those of large services, crypt(3).
  #tokens(text: string): string {
    return text
      .replace(/\beyJ[\w-]{8,}\.[\w-]{4,}(?:\.[\w-]*)?/g, REMOVED)
      .replace(/(?<![\w.-])[a-z0-9]{6}\.[a-z0-9]{16}(?![\w.-])/g, REMOVED)
      .replace(/\b(?:AKIA|ASIA)[A-Z0-9]{16}\b|\b(?:gh[pousr]|glpat|xox[abprs])[-_][\w-]{10,}/g, REMOVED)
      .replace(/\$(?:1|2[aby]|5|6|y)\$[\w./$=,-]{8,}/g, REMOVED)
  }

  // 32 bytes in base64 are a key of WireGuard. Public ones stay where a name says that they are.
  #keys(text: string): string {
    return text.replace(
      /(?<![A-Za-z0-9+/=])[A-Za-z0-9+/]{42}[AEIMQUYcgkosw048]=(?![A-Za-z0-9+/=])/g,
      (key, at: number) =>
        /(public[-_ ]?key|peers?)\W{0,6}$/i.test(text.slice(Math.max(0, at - 32), at)) ? key : REMOVED,
    )
  }

  #base64(text: string, depth: number): string {
    if (depth === 0) return text
    const hides = (run: string) => {
      const decoded = decodedText(run.replace(/\s+/g, ''))
      return decoded !== undefined && this.text(decoded, depth - 1) !== decoded
    }
    return text
      .replace(/(?:[A-Za-z0-9+/]{48,96}\r?\n[ \t]{0,32}){1,2000}[A-Za-z0-9+/]{1,96}={0,2}/g, (run) =>
        hides(run) ? REMOVED : run,
      )
      .replace(/[A-Za-z0-9+/_-]{16,}={0,2}/g, (run) => (hides(run) ? REMOVED : run))
  }
}

// As it is, in JSON, and in a URL.
function formsOf(secret: string): Set<string> {
  return new Set([secret, JSON.stringify(secret).slice(1, -1), encodeURIComponent(secret.toWellFormed())])
}

function objectOf(text: string): unknown {
  try {
    const value: unknown = JSON.parse(text)
    return typeof value === 'object' && value !== null ? value : undefined
  } catch {
    return undefined
  }
}

// An element, or a key of the outermost value, on each line.
function linesOf(value: unknown): string {
  if (Array.isArray(value)) return `[\n${value.map((one) => JSON.stringify(one)).join(',\n')}\n]\n`
  const rows = Object.entries(value as object).map(([key, one]) => `${JSON.stringify(key)}: ${JSON.stringify(one)}`)
  return `{\n${rows.join(',\n')}\n}\n`
}

function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

function onlyOurs(annotations: Readonly<Record<string, unknown>>): object {
  return Object.fromEntries(Object.entries(annotations).filter(([key]) => OURS.test(key)))
}

/** Where the value after a name begins and ends. `after` is the place behind the sign between them. */
function valueAt(text: string, name: number, after: number): { readonly start: number; readonly end: number } {
  const start = skip(text, after, ' \t')
  const endOfLine = lineEnd(text, start)
  const [quote] = /^\\{0,8}["']/.exec(text.slice(start, start + 9)) ?? []
  if (quote !== undefined) return { start, end: closing(text, start + quote.length, quote) ?? endOfLine }
  const line = text.lastIndexOf('\n', name - 1) + 1
  const before = text.slice(Math.max(line, name - 64), name)
  const isFirst = /^[\s#;-]*(export\s+|set\s+)?["']?$/.test(before)
  const rest = text.slice(start, endOfLine)
  // A block of YAML, or a list below the name.
  if (isFirst && /^([|>][-+\d]*)?\s*$/.test(rest)) return { start, end: blockEnd(text, endOfLine, name - line) }
  if (isFirst || /^[[{]/.test(rest)) return { start, end: endOfLine }
  const header = /(authorization|cookie|auth)$/i.test(text.slice(name, after).replace(/\W+$/, ''))
  const [value = ''] = (header ? /^[^"'\0]*/ : /^[^\s\0]*/).exec(rest) ?? []
  return { start, end: start + value.length }
}

function skip(text: string, from: number, signs: string): number {
  let at = from
  while (at < text.length && signs.includes(text.charAt(at))) at++
  return at
}

function lineEnd(text: string, from: number): number {
  const end = text.indexOf('\n', from)
  return end < 0 ? text.length : end
}

// The place behind the closing quote, which has as many backslashes as the opening one. Undefined without one.
function closing(text: string, from: number, quote: string): number | undefined {
  for (let at = text.indexOf(quote, from); at >= 0 && at - from < LONGEST_VALUE; at = text.indexOf(quote, at + 1)) {
    let slashes = 0
    while (text.charAt(at - 1 - slashes) === '\\') slashes++
    const isEscaped = quote.length === 1 ? quote === '"' && slashes % 2 === 1 : slashes > 0
    if (!isEscaped) return at + quote.length
  }
  return undefined
}

function blockEnd(text: string, from: number, indent: number): number {
  let end = from
  while (end < text.length) {
    const next = lineEnd(text, end + 1)
    const line = text.slice(end + 1, next)
    const depth = skip(line, 0, ' \t')
    const isItem = depth === indent && line.charAt(depth) === '-'
    if (line.trim() !== '' && depth <= indent && !isItem) break
    end = next
  }
  return end
}

// Base64 of a text, of either alphabet. Undefined when the bytes are no text.
function decodedText(run: string): string | undefined {
  if (!/^[A-Za-z0-9+/_-]{8,}={0,2}$/.test(run)) return undefined
  const bytes = Buffer.from(run.slice(0, LONGEST_VALUE).replaceAll('-', '+').replaceAll('_', '/'), 'base64')
  let odd = 0
  for (const byte of bytes) if ((byte < 32 && byte !== 9 && byte !== 10 && byte !== 13) || byte === 127) odd++
  if (odd * 10 > bytes.length) return undefined
  const text = bytes.toString()
  return text.split('\ufffd').length * 10 > text.length + 10 ? undefined : text
}

// The part of base64 that tells of a secret within a text, at each of three offsets. The signs at its ends depend on the
// text before and after the secret, so they are left out.
function encodings(secret: string): string[] {
  return [0, 1, 2].flatMap((offset) => {
    const bytes = Buffer.concat([Buffer.alloc(offset), Buffer.from(secret)])
    const whole = bytes.toString('base64').replace(/=+$/, '')
    const last = bytes.length % 3 === 0 ? whole.length : whole.length - 1
    const form = whole.slice([0, 2, 3][offset], last)
    return form.length < 8 ? [] : [form, form.replaceAll('+', '-').replaceAll('/', '_')]
  })
}

/** What stands instead of a secret. */
const REMOVED = '(removed)'

const WORDS =
  /pass(word|wd|phrase|code)|secret|token|psk|presharedkey|privatekey|apikey|accesskey|signingkey|encryptionkey|clientkey|keydata|certificatedata|credential|authorization|cookie|fastopenkey|bearer|wgkey/
const ENDINGS = /(^|[^a-z])(pass|pwd|auth|md5|community)$/i
// These name a place or a property of a secret, not the secret.
const HARMLESS = /(file|path|dir|name|namespace|type|mode|count|seconds|ref|version)$/

/** Whether a key, a flag or a variable of this name has a secret as its value. */
export function isSensitive(name: string): boolean {
  const plain = name.toLowerCase().replace(/[^a-z0-9]/g, '')
  return (WORDS.test(plain) && !HARMLESS.test(plain)) || ENDINGS.test(name)
}

// Whether a word is no word of a language: it has digits, signs, or capitals within.
function looksSecret(word: string): boolean {
  return /\d|[a-z][A-Z]|[^\w\s.,:;'"()/-]/.test(word) && word !== REMOVED
}
