// This folder holds one CNI plugin per file. This file is the entry of the executable and selects the plugin by the program name. Read
// dummy.ts next for the smallest plugin, then bridge.ts.
import type { Plugin } from '../lib/cni/plugin.ts'
import { versionAnswer } from '../lib/cni/spec.ts'
import { log } from '../lib/os/log.ts'
import { toStdout } from '../lib/os/stdout.ts'

// The names of the plugin files in this folder. The build sets them.
declare const PLUGINS: readonly string[]

// One executable has many names. The name in the call selects the plugin (multi-call, like busybox).
const called = process.argv0.slice(process.argv0.lastIndexOf('/') + 1)

// The reference plugin starts its daemon as `dhcp daemon`. systemd units that do so keep working.
const isDaemon = called === 'dhcp' && process.argv[2] === 'daemon' && !process.env['CNI_COMMAND']

if (called === 'plumb' || isDaemon) {
  const { main } = await import('../cli/index.ts')
  process.exitCode = await main(isDaemon ? ['dhcp', ...process.argv.slice(3)] : process.argv.slice(2), load)
} else if (!PLUGINS.includes(called)) {
  log(`plumb has no plugin ${JSON.stringify(called)}: link the executable under the name of one (${PLUGINS.join(', ')})`)
  process.exitCode = 1
} else if (process.env['CNI_COMMAND'] === 'VERSION') {
  answerVersion()
} else {
  const { serveProcess } = await import('../lib/verbs/process.ts')
  // Exits at once. The heap and the unused tools that were started ahead end with the process.
  process.exit(await serveProcess(called, load))
}

async function load(name: string): Promise<Plugin | undefined> {
  return PLUGINS.includes(name) ? (await import(`./${name}.ts`)).default : undefined
}

function answerVersion(): void {
  try {
    toStdout(versionAnswer())
  } catch (cause) {
    log(`Cannot write the versions to stdout: ${(cause as Error).message}`)
    process.exitCode = 1
  }
}
