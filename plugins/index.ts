import type { Plugin } from '../lib/cni/plugin.ts'
import { versionAnswer } from '../lib/cni/spec.ts'
import { log } from '../lib/os/log.ts'
import { toStdout } from '../lib/os/stdout.ts'

// The files beside this one, as the build found them.
declare const PLUGINS: readonly string[]

// One executable under many names: what it was called by says which plugin it is (multi-call, as busybox).
const called = process.argv0.slice(process.argv0.lastIndexOf('/') + 1)

// The reference's daemon is its plugin, started as `dhcp daemon`; so units that start it go on working.
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
  // At once: what is left (a heap to give back, tools that were started ahead and not needed) goes with the process.
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
