import { gzipSync } from 'node:zlib'

/** The length of a block of tar, in bytes (POSIX pax, "ustar Interchange Format"). */
const BLOCK = 512
/** What the end of the archive needs at most, in bytes. */
const END = 64

/**
 * A tar.gz in memory, of texts. Each file is a gzip member of its own (RFC 1952 2.2), so that the size of the whole is
 * known at any time.
 */
export class Archive {
  readonly #folder: string
  readonly #limit: number
  readonly #parts: Uint8Array[] = []
  #size = 0

  /** `folder` is the folder of all files, at most 150 letters. The archive does not grow over `limit` bytes. */
  constructor(folder: string, limit: number) {
    this.#folder = folder
    this.#limit = limit
  }

  /**
   * Adds a file. `name` has at most 100 letters of ASCII. `time` is in milliseconds since 1970. Returns false, and adds
   * nothing, when there is no room for it.
   */
  add(name: string, text: string, time: number): boolean {
    const body = Buffer.from(text)
    const rest = Buffer.alloc((BLOCK - (body.length % BLOCK)) % BLOCK)
    const part = gzipSync(Buffer.concat([header(this.#folder, name, body.length, time), body, rest]))
    if (this.#size + part.length > this.#limit - END) return false
    this.#parts.push(part)
    this.#size += part.length
    return true
  }

  /** The bytes of the archive. */
  bytes(): Uint8Array {
    return Buffer.concat([...this.#parts, gzipSync(Buffer.alloc(2 * BLOCK))])
  }
}

function header(folder: string, name: string, size: number, time: number): Buffer {
  const block = Buffer.alloc(BLOCK)
  const put = (at: number, text: string) => block.write(text, at, 'latin1')
  const octal = (value: number, digits: number) => value.toString(8).padStart(digits, '0')
  put(0, name)
  put(100, '0000600\0')
  put(108, '0000000\0')
  put(116, '0000000\0')
  put(124, `${octal(size, 11)}\0`)
  put(136, `${octal(Math.floor(time / 1000), 11)}\0`)
  // The checksum counts its own field as spaces.
  put(148, '        ')
  put(156, '0')
  put(257, 'ustar\x0000')
  put(345, folder)
  const sum = block.reduce((total, byte) => total + byte, 0)
  put(148, `${octal(sum, 6)}\0 `)
  return block
}
