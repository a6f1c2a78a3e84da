import { statSync } from 'node:fs'
import { draftOf, writeAtomic } from '../../lib/os/files.ts'
import { readRegular, readText } from '../../lib/os/reading.ts'
import { shown, ValueError } from '../../lib/text/errors.ts'
import { byteLength } from '../../lib/text/values.ts'
import { pause } from '../scheduler/pause.ts'
import { type BgpConfiguration, parseBgp } from './configuration.ts'

/** The configuration of BGP with all that it names. Two of one `id` are the same. */
export interface BgpSource {
  readonly id: string
  readonly text: string
  readonly conf: BgpConfiguration
  /** The passwords by the path of their file. */
  readonly passwords: ReadonlyMap<string, string>
}

/** The file of the configuration as it is: a configuration, or why it is none. Two of one `id` are the same. */
export interface BgpFile {
  readonly id: string
  readonly source?: BgpSource
  readonly why?: string
}

// The longest key of TCP MD5 (linux/tcp.h, TCP_MD5SIG_MAXKEYLEN).
const LONGEST = 80
/** The file and those of passwords are read each second, in milliseconds. */
const LOOK_MS = 1000
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

/**
 * Follows the file of `--bgp-config`. A file may be looked at while somebody writes it. So a change counts when the next
 * look sees the same. `backend` is this node's, and `isByBird` says that BIRD can write its routes.
 */
export class BgpFileWatch {
  readonly #path: string
  readonly #backend: string
  readonly #isByBird: boolean
  /** As it counts, and as the last look saw it. */
  #read: BgpFile
  #last: BgpFile

  constructor(path: string, backend: string, isByBird: boolean) {
    this.#path = path
    this.#backend = backend
    this.#isByBird = isByBird
    this.#read = this.#last = this.#look(undefined)
  }

  /** The file as it counts. */
  get read(): BgpFile {
    return this.#read
  }

  /** Looks at the file each second until the signal. Calls `changed` when another one counts. */
  async follow(signal: AbortSignal, changed: (file: BgpFile) => void): Promise<void> {
    for (; !signal.aborted; await pause(LOOK_MS, signal)) if (this.#isChanged()) changed(this.#read)
  }

  #isChanged(): boolean {
    const now = this.#look(this.#read.source)
    const isChanged = now.id !== this.#read.id && now.id === this.#last.id
    if (isChanged) this.#read = now
    this.#last = now
    return isChanged
  }

  #look(before: BgpSource | undefined): BgpFile {
    try {
      const source = readSource(this.#path, before)
      this.#requireRoutes(source)
      return { id: source.id, source }
    } catch (cause) {
      const { message } = cause as Error
      return { id: message, why: message }
    }
  }

  #requireRoutes({ conf: { programs } }: BgpSource): void {
    if (programs === 'agent' || this.#isByBird) return
    const why = `backend ${this.#backend} needs more than routes`
    throw new ValueError(`Cannot use ${this.#path}: programs bird: ${why}; want backend ipip, host-gw or alloc`)
  }
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
