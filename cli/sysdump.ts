import { existsSync } from 'node:fs'
import { dirname } from 'node:path'
import { SOCKET } from '../agent/http/server.ts'
import { remove, writeAtomic } from '../lib/os/files.ts'
import { listFiles } from '../lib/os/reading.ts'
import { CniError, CODE, ValueError } from '../lib/text/errors.ts'
import { version } from '../package.json'
import { choicesOf, describeOptions, type Entry, type Grammar, type OptionName, readOptions } from './options.ts'
import { print, write } from './output.ts'
import { placesOf } from './places.ts'
import { collect, type Sysdump } from './sysdump/sysdump.ts'

const names: readonly OptionName[] = [
  'since',
  'output',
  'anonymous',
  'kubeconfig-file',
  'socket',
  'subnet-file',
  'conf-dir',
  'bin-dir',
  'json',
  'help',
]

/** Its row in the list of commands. */
export const entry: Entry = {
  place: 7,
  about: 'pack all that tells the state of this node into one file, without secrets',
}

/** What may follow this command. */
export const grammar: Grammar = { options: choicesOf(names) }

const UNITS: Readonly<Record<string, number>> = { s: 1, m: 60, h: 3600, d: 86_400 }
/** The longest time that `--since` takes, in seconds. */
const LONGEST_S = 30 * 86_400
/** A draft of the archive, with the id of the process that writes it. */
const DRAFT = /^\.plumb-sysdump-(\d+)\.draft$/

/**
 * Runs `plumb sysdump ARGV` and returns the exit status, which is 0 when the archive was written. Throws ValueError for
 * a wrong command line, and CniError without root and when the archive cannot be written.
 */
export async function run(argv: readonly string[]): Promise<number> {
  const { values, words } = readOptions(argv, names, 'plumb sysdump')
  if (words.length > 0)
    throw new ValueError(`plumb sysdump takes no ${JSON.stringify(words[0])}; see plumb sysdump --help`)
  if (values.help) {
    print(help())
    return 0
  }
  const since = secondsOf(values.since ?? '1h')
  // An archive without rules, the journal and the agent's status would look like one of a node without them.
  if (process.getuid?.() !== 0)
    throw new CniError(CODE.env, 'Cannot tell the state of this node: it needs root', 'run it with sudo')
  const file = values.output
  const dir = file?.includes('/') ? dirname(file) : '.'
  if (file !== '-' && !existsSync(dir))
    throw new CniError(CODE.io, `Cannot write ${file}: there is no folder ${dir}`, 'want -o FILE in a folder with room')
  const dump = await collect({
    version,
    since,
    isAnonymous: values.anonymous ?? false,
    socket: values.socket ?? SOCKET,
    kubeconfig: values['kubeconfig-file'],
    places: placesOf(values),
  })
  if (file === '-') {
    write(dump.bytes)
    return 0
  }
  const path = file ?? `${dump.name}.tar.gz`
  save(path, dump.bytes)
  print(values.json ? JSON.stringify({ file: path, ...shown(dump) }, null, 4) : text(path, dump))
  return 0
}

function secondsOf(words: string): number {
  const [, count = '', unit = ''] = /^(\d{1,9})([smhd])$/.exec(words) ?? []
  const seconds = Number(count) * (UNITS[unit] ?? 0)
  if (seconds > 0 && seconds <= LONGEST_S) return seconds
  throw new ValueError(`--since ${JSON.stringify(words)}: want a time up to 30d, such as 90s, 30m, 1h or 2d`)
}

// A run that was killed while it wrote leaves its draft. The next one removes it.
function save(file: string, bytes: Uint8Array): void {
  const dir = file.includes('/') ? file.slice(0, file.lastIndexOf('/') + 1) : './'
  try {
    for (const name of listFiles(dir)) {
      const pid = DRAFT.exec(name)?.[1]
      if (pid !== undefined && !isRunning(Number(pid))) remove(`${dir}${name}`)
    }
    writeAtomic(file, bytes, { by: `${dir}.plumb-sysdump-${process.pid}.draft` })
  } catch (cause) {
    const { message } = cause as Error
    throw new CniError(CODE.io, `Cannot write ${file}: ${message}`, 'want -o FILE in a folder with room', { cause })
  }
}

function isRunning(pid: number): boolean {
  try {
    process.kill(pid, 0)
    return true
  } catch (cause) {
    return (cause as NodeJS.ErrnoException).code === 'EPERM'
  }
}

function shown({ bytes, files, failed }: Sysdump): { bytes: number; files: number; failed: readonly string[] } {
  return { bytes: bytes.length, files, failed }
}

function text(file: string, { bytes, files, failed }: Sysdump): string {
  const size = `${(bytes.length / 1e6).toFixed(1)} MB`
  const missing = failed.length === 0 ? '' : `\nnot there, with the reason in the archive: ${failed.join(' ')}`
  return `${file}: ${files} files, ${size}${missing}\nLook at it before you give it away: it names nodes, pods and addresses.`
}

function help(): string {
  return `usage: plumb sysdump [options]: pack all that tells the state of this node into one file

${describeOptions(names)}

The file is a tar.gz of at most 20 MB. Keys, passwords, tokens and values of environments are removed.
It needs root, and ten seconds, because it reads the metrics twice. It changes nothing. It works without the agent.

exit status: 0 the file is written, 1 it cannot be written, or no root, 2 the command line is wrong`
}
