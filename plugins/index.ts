// This folder holds one CNI plugin per file. This file is the entry of their executable and selects the plugin by the
// program name. Read dummy.ts next for the smallest plugin, then bridge.ts.
import type { Plugin } from '../lib/cni/plugin.ts'
import { newest, versionAnswer } from '../lib/cni/spec.ts'
import { args, calledAs, env, exit } from '../lib/os/door.ts'
import { log } from '../lib/os/log.ts'
import { toStdout } from '../lib/os/stdout.ts'

// The names of the plugin files in this folder. The build sets them.
declare const PLUGINS: readonly string[]

// One executable has many names. The name in the call selects the plugin (multi-call, like busybox).
const given = calledAs().slice(calledAs().lastIndexOf('/') + 1)
const called = PLUGINS.includes(given) ? given : (await import('../lib/os/own-name.ts')).pluginBehind(PLUGINS)

if (called === undefined) {
  await refuse(given)
  exit(1)
} else if (env['CNI_COMMAND'] === 'VERSION') {
  exit(answerVersion())
} else if (called === 'dhcp' && args()[0] === 'daemon' && !env['CNI_COMMAND']) {
  const { becomePlumb } = await import('../lib/os/become.ts')
  exit(becomePlumb(['dhcp', ...args().slice(1)]))
} else {
  const { serveProcess } = await import('../lib/verbs/serve.ts')
  // Exits at once. The heap and the unused tools that were started ahead end with the process.
  exit(await serveProcess(called, load))
}

async function load(name: string): Promise<Plugin | undefined> {
  return PLUGINS.includes(name) ? (await import(`./${name}.ts`)).default : undefined
}

// A runtime gets an error object (CNI spec 1.1.0 section 5). A person reads a line.
async function refuse(name: string): Promise<void> {
  const { CODE, shown } = await import('../lib/text/errors.ts')
  const msg = `plumb has no plugin ${shown(name)}`
  const details = `want a symbolic link to a plugin, or a file ${name}.plugin beside it that names one: ${PLUGINS.join(', ')}`
  log(`${msg}: ${details}`)
  if (!env['CNI_COMMAND']) return
  try {
    toStdout(JSON.stringify({ cniVersion: newest, code: CODE.config, msg, details }, null, 4))
  } catch (cause) {
    log(`Cannot write the error to stdout: ${(cause as Error).message}`)
  }
}

function answerVersion(): 0 | 1 {
  try {
    toStdout(versionAnswer())
    return 0
  } catch (cause) {
    log(`Cannot write the versions to stdout: ${(cause as Error).message}`)
    return 1
  }
}
