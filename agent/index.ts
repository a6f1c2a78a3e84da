// The node agent. `run` takes a command line and starts the agent. `serve.ts` runs it until a signal or a new network
// configuration. `prepare.ts` waits for the configuration and the tools, and `surface.ts` shows what it waits for.
// `parts/` does the work then. docs/architecture.md draws the folders.
import { existsSync, readFileSync } from 'node:fs'
import { fail, formatLog, log } from '../lib/os/log.ts'
import { type CniError, ValueError } from '../lib/text/errors.ts'
import { readSource } from './bgp/source.ts'
import { cleanup } from './cleanup.ts'
import { slim } from './node/garbage.ts'
import { logLine } from './node/log-format.ts'
import { notify } from './node/systemd.ts'
import { serve } from './serve.ts'
import { describe, readSettings, settingRows, settingsPath } from './settings/read.ts'
import type { Settings } from './settings/settings.ts'
import { SubnetTakenError } from './store/store.ts'

/** What the command line gives the agent: plumb's version, a printer for stdout, and a formatter for tables. */
export interface CommandLine {
  readonly version: string
  print(text: string): void
  table(rows: readonly (readonly string[])[]): string
}

/**
 * Runs `plumb agent ARGV` until a signal and gives the exit status. 0 means that a signal ended the agent. 1 means that
 * an error ended it. Throws ValueError for wrong settings.
 */
export async function run(argv: readonly string[], { version, print, table }: CommandLine): Promise<number> {
  if (argv.some((one) => /^(-h|-?-help)$/.test(one))) {
    print(`${HELP}\n\n${table(settingRows())}`)
    return 0
  }
  const isCleanup = argv[0] === 'cleanup'
  const force = isCleanup && argv.includes(FORCE)
  const settings = settingsOf(isCleanup ? argv.slice(1).filter((one) => one !== FORCE) : argv)
  if (settings.only === 'version') {
    print(`plumb ${version}`)
    return 0
  }
  if (!isCleanup) formatLog(logLine(settings.logFormat))
  for (const note of settings.notes) log(`agent: ${note}`)
  if (settings.only === 'check-config') {
    if (settings.bgp) readSource(settings.bgp.file)
    print(`the settings are right: ${describe(settings)}`)
    return 0
  }
  if (isCleanup) {
    for (const line of await cleanup(settings, { force })) print(line)
    return 0
  }
  log(`agent: plumb ${version} ${describe(settings)}`)
  return untilSignal(settings, version)
}

const FORCE = '--force'

const HELP = `usage: plumb agent [options]: gives this node its part of the network, and makes the other nodes' pods reachable
       plumb agent cleanup [--force] [options]: removes all that it made on this node, and gives the subnet back.
       Programs of plumb install stay

Options are flanneld's, with one dash or two, as FLANNELD_NAME in the environment, or in the YAML file of --config.
While pods live that plumb attached, cleanup is refused:

  --force   with cleanup: those pods lose their network

exit status: 0 ended by SIGTERM or SIGINT (pods stay reachable), 1 something failed, 2 the settings are wrong`

/** Reads the settings from the command line, the environment and the file of `--config`. Throws ValueError. */
export function settingsOf(argv: readonly string[]): Settings {
  const path = settingsPath(argv, process.env)
  if (path !== undefined && !existsSync(path))
    throw new ValueError(`Cannot read --config ${path}: there is no such file`)
  return readSettings(argv, process.env, path === undefined ? undefined : { path, text: readFileSync(path, 'utf8') })
}

async function untilSignal(settings: Settings, version: string): Promise<number> {
  slim()
  const end = new AbortController()
  for (const signal of ['SIGTERM', 'SIGINT'] as const)
    process.once(signal, () => {
      notify('STOPPING=1')
      log(`agent: ended by ${signal}; what it made stays, and pods stay reachable`)
      end.abort()
      // A second signal ends the process at once. It does not wait for work in progress.
      process.once(signal, () => process.exit(1))
    })
  try {
    await serve(settings, version, end.signal)
    return 0
  } catch (cause) {
    if (end.signal.aborted) return 0
    const { message, details } = cause as CniError
    const taken = 'its subnet belongs to another node, and its pods cannot keep their addresses'
    const what = cause instanceof SubnetTakenError ? taken : 'cannot go on'
    fail(`agent: ${what}: ${message}${details ? `: ${details}` : ''}`)
    return 1
  } finally {
    end.abort()
  }
}
