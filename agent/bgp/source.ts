import { statSync } from 'node:fs'
import { draftOf, writeAtomic } from '../../lib/os/files.ts'
import { readRegular, readText } from '../../lib/os/reading.ts'
import { shown, ValueError } from '../../lib/text/errors.ts'
import { byteLength } from '../../lib/text/values.ts'
import { type BgpConfiguration, parseBgp } from './configuration.ts'

/** The configuration of BGP with all that it names. Two of one `id` are the same. */
export interface BgpSource {
  readonly id: string
  readonly text: string
  readonly conf: BgpConfiguration
  /** The passwords by the path of their file. */
  readonly passwords: ReadonlyMap<string, string>
}

// The longest key of TCP MD5 (linux/tcp.h, TCP_MD5SIG_MAXKEYLEN).
const LONGEST = 80
/** The file and those of passwords are read each second. */
const MOST_BYTES = 1_048_576

/**
 * Reads the file of `--bgp-config`, and the files of passwords. `before` is what was read last: the same text is not
 * parsed again. Throws ValueError, which shows no password.
 */
export function readSource(file: string, before?: BgpSource): BgpSource {
  const text = contentOf(file, file)
  const conf = before?.text === text ? before.conf : parseBgp(file, text)
  const paths = new Set(conf.peers.flatMap(({ passwordFile }) => passwordFile ?? []))
  return sourceOf(text, conf, new Map([...paths].map((path) => [path, passwordOf(path, file)])))
}

/** Keeps a configuration for the next start of the agent. Only root can read the file. */
export function keepSource(path: string, { text, passwords }: BgpSource): void {
  writeAtomic(path, JSON.stringify({ text, passwords: [...passwords] }), { durable: false, by: draftOf(path) })
}

/** The configuration that `keepSource` has kept. Undefined when there is none that can be read. */
export function keptSource(path: string): BgpSource | undefined {
  try {
    const { text, passwords } = JSON.parse(readText(path) ?? '') as { text: string; passwords: [string, string][] }
    return sourceOf(text, parseBgp(path, text), new Map(passwords))
  } catch {
    // The configuration of the user counts then.
    return undefined
  }
}

function sourceOf(text: string, conf: BgpConfiguration, passwords: ReadonlyMap<string, string>): BgpSource {
  const id = Bun.hash.xxHash64(JSON.stringify([text, ...passwords])).toString(16)
  return { id, text, conf, passwords }
}

function passwordOf(path: string, file: string): string {
  const [line = ''] = contentOf(path, file).split(/\r?\n/, 1)
  const want = `want a first line in UTF-8, of 1 to ${LONGEST} bytes without quotes`
  // What is no UTF-8 is read as U+FFFD.
  if (line === '' || byteLength(line) > LONGEST || /["\0\r\ufffd]/.test(line))
    throw new ValueError(`Cannot use ${file}: the password in ${shown(path)} is unusable: ${want}`)
  return line
}

function contentOf(path: string, file: string): string {
  const why = (text: string) => (path === file ? `Cannot use ${file}: ${text}` : `Cannot use ${file}: ${path}: ${text}`)
  try {
    const { size = 0 } = statSync(path, { throwIfNoEntry: false }) ?? {}
    if (size > MOST_BYTES) throw new Error(`it has ${size} bytes; want ${MOST_BYTES} at most`)
    const text = readRegular(path)
    if (text !== undefined) return text
  } catch (cause) {
    throw new ValueError(why((cause as Error).message), { cause })
  }
  throw new ValueError(why('there is no such file'))
}
