import { isSix } from '../../lib/text/cidr.ts'
import { type Ip, parseIp } from '../../lib/text/ip.ts'

// Questions to a name server and their answers (RFC 1035, RFC 3596).
const [HEADER, A, AAAA, INTERNET] = [12, 1, 28, 1]
/** The flag "recursion desired". */
const RECURSION = 0x0100
/** The two upper bits of a length that says where the rest of a name stands (RFC 1035, 4.1.4). */
const POINTER = 0xc0
const CODES: Readonly<Record<number, string>> = {
  1: 'FORMERR',
  2: 'SERVFAIL',
  3: 'NXDOMAIN',
  4: 'NOTIMP',
  5: 'REFUSED',
}

/** What a name server answers: addresses, or the name of an error. */
export type DnsAnswer = { readonly ips: readonly Ip[] } | { readonly error: string }

/** A question for the addresses of a name, of the family of `like`. `id` is a number below 65,536. */
export function dnsQuestion(id: number, name: string, like: Ip): Uint8Array {
  const labels = name.split('.').map((label) => Buffer.from(label))
  const encoded = Buffer.concat(labels.flatMap((label) => [Buffer.of(label.length), label]))
  const head = Buffer.alloc(HEADER)
  head.writeUInt16BE(id, 0)
  head.writeUInt16BE(RECURSION, 2)
  head.writeUInt16BE(1, 4)
  const tail = Buffer.alloc(5)
  tail.writeUInt16BE(isSix(like) ? AAAA : A, 1)
  tail.writeUInt16BE(INTERNET, 3)
  return Buffer.concat([head, encoded, tail])
}

/** Reads an answer. Undefined for a message that does not answer the question `id`. */
export function dnsAnswer(message: Uint8Array, id: number): DnsAnswer | undefined {
  const bytes = Buffer.from(message)
  if (bytes.length < HEADER || bytes.readUInt16BE(0) !== id || (bytes.readUInt8(2) & 0x80) === 0) return undefined
  const code = bytes.readUInt8(3) & 0x0f
  if (code !== 0) return { error: CODES[code] ?? `error ${code}` }
  try {
    return { ips: addressesIn(bytes) }
  } catch {
    return { error: 'a damaged answer' }
  }
}

// Throws RangeError for a message that ends too early.
function addressesIn(bytes: Buffer): Ip[] {
  const [questions, answers] = [bytes.readUInt16BE(4), bytes.readUInt16BE(6)]
  let at = HEADER
  for (let i = 0; i < questions; i++) at = afterName(bytes, at) + 4
  const found: Ip[] = []
  for (let i = 0; i < answers; i++) {
    at = afterName(bytes, at)
    const [type, length] = [bytes.readUInt16BE(at), bytes.readUInt16BE(at + 8)]
    const data = bytes.subarray(at + 10, at + 10 + length)
    if (type === A && length === 4) found.push(parseIp(data.join('.')))
    if (type === AAAA && length === 16) found.push(parseIp(data.toString('hex').replace(/....(?!$)/g, '$&:')))
    at += 10 + length
  }
  return found
}

function afterName(bytes: Buffer, start: number): number {
  let at = start
  for (;;) {
    const length = bytes.readUInt8(at)
    if (length >= POINTER) return at + 2
    if (length === 0) return at + 1
    at += 1 + length
  }
}
