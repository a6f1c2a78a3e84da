import { type Settings, serve } from '../agent/dhcp/index.ts'
import { SOCKET } from '../lib/pools/dhcp.ts'
import { shown, ValueError } from '../lib/text/errors.ts'
import { suggestion } from '../lib/text/shape.ts'
import type { Entry, Grammar } from './options.ts'
import { print, table } from './output.ts'

/** The options of the reference (`dhcp daemon`), with one dash or two. `otherwise` is the default value. */
interface DaemonOption {
  readonly value?: string
  readonly otherwise: string
  readonly about: string
}
const OPTIONS: Readonly<Record<string, DaemonOption>> = {
  socketpath: {
    value: 'PATH',
    otherwise: SOCKET,
    about: 'where the plugin finds it; its leases lie beside, in PATH.leases',
  },
  hostprefix: {
    value: 'DIR',
    otherwise: '',
    about: "put before the paths of sockets and namespaces: where the host's root is, in a container",
  },
  pidfile: { value: 'PATH', otherwise: '', about: 'where its process id is written to' },
  broadcast: {
    otherwise: 'false',
    about: 'servers are to broadcast their answers: for links that share one address, such as ipvlan',
  },
  timeout: { value: 'TIME', otherwise: '10s', about: 'how long it waits for an answer' },
  resendmax: { value: 'TIME', otherwise: '62s', about: 'how long it waits at most until it sends again' },
  resendtimeout: { value: 'TIME', otherwise: '208s', about: 'how long an ADD tries to get a lease' },
}

/** Its row in the list of commands. */
export const entry: Entry = { place: 15, about: 'get leases of DHCP servers for the plugin dhcp, and keep them' }

/** What may follow `plumb dhcp`. */
export const grammar: Grammar = {
  options: Object.entries(OPTIONS).map(([name, { value, about }]) => ({
    word: `-${name}`,
    about,
    ...(value !== undefined && { value }),
  })),
}

/** Runs `plumb dhcp ARGV` until a signal arrives, and returns the exit status. Throws ValueError for wrong options. */
export async function run(argv: readonly string[]): Promise<number> {
  // The reference plugin starts its daemon with the word `daemon`.
  const words = argv[0] === 'daemon' ? argv.slice(1) : argv
  if (words.some((one) => /^(-h|-?-help)$/.test(one))) {
    print(help())
    return 0
  }
  await serve(settingsOf(words))
  return 0
}

/** Reads the settings from a command line. Throws ValueError. */
export function settingsOf(words: readonly string[]): Settings {
  const given = read(words)
  const of = (name: string) => given.get(name) ?? (OPTIONS[name]?.otherwise as string)
  const pidFile = of('pidfile')
  if (pidFile !== '' && !pidFile.startsWith('/'))
    throw new ValueError(`Cannot read -pidfile ${shown(pidFile)}: want an absolute path`)
  const broadcast = of('broadcast')
  if (!/^(true|false|1|0|t|f)$/i.test(broadcast))
    throw new ValueError(`Cannot read -broadcast ${shown(broadcast)}: want true or false`)
  const time = (name: string) => milliseconds(name, of(name))
  return {
    socketPath: of('socketpath') || SOCKET,
    hostPrefix: of('hostprefix').replace(/\/$/, ''),
    ...(pidFile && { pidFile }),
    broadcast: /^[1t]/i.test(broadcast),
    timeoutMs: time('timeout'),
    resendMaxMs: time('resendmax'),
    resendTimeoutMs: time('resendtimeout'),
  }
}

// Accepts the forms of Go's flags: `-name value`, `-name=value`, and `-name` alone for a switch.
function read(words: readonly string[]): ReadonlyMap<string, string> {
  const given = new Map<string, string>()
  for (let left = [...words]; left.length > 0; ) {
    const word = left.shift() as string
    const [, name = '', value] = /^--?([a-z]+)(?:=(.*))?$/s.exec(word) ?? []
    const option = Object.hasOwn(OPTIONS, name) ? OPTIONS[name] : undefined
    if (!option) {
      const hint = suggestion(name, new Map(Object.keys(OPTIONS).map((one) => [one, `-${one}`])))
      throw new ValueError(`plumb dhcp has no option ${shown(word)}${hint}; see plumb dhcp --help`)
    }
    const found = value ?? (option.value ? left.shift() : 'true')
    if (found === undefined) throw new ValueError(`Cannot read -${name}: want a value after it, ${option.value}`)
    given.set(name, found)
  }
  return given
}

const UNITS: Readonly<Record<string, number>> = { ms: 1, s: 1000, m: 60_000, h: 3_600_000 }

// Parses a duration of Go, such as 208s, 3m28s or 500ms.
function milliseconds(name: string, text: string): number {
  const parts = [...text.matchAll(/(\d+(?:\.\d+)?)(ms|s|m|h)/g)]
  const sum = parts.reduce((all, [, number, unit]) => all + Number(number) * (UNITS[unit as string] as number), 0)
  if (parts.map(([part]) => part).join('') !== text || !(sum > 0))
    throw new ValueError(`Cannot read -${name} ${shown(text)}: want a time such as 10s or 3m28s`)
  return sum
}

function help(): string {
  const rows = Object.entries(OPTIONS).map(([name, { value, otherwise, about }]): string[] => [
    `  -${name}${value ? ` ${value}` : ''}`,
    `${about}${otherwise && value ? ` (${otherwise})` : ''}`,
  ])
  return `usage: plumb dhcp [options]: gets leases of DHCP servers for the plugin dhcp, and keeps them until DEL

${table([], rows)}

With a socket of systemd (LISTEN_FDS) it listens there. Leases outlive it: the next daemon goes on with them.

exit status: 0 ended by SIGTERM or SIGINT, 1 something failed, 2 the command line is wrong`
}
