import { readFileSync } from 'node:fs'
import { type Io, serve, toStdout } from '../lib/cni.ts'
import { run } from '../lib/exec.ts'
import { log } from '../lib/log.ts'
import type { Plugin } from '../lib/plugin.ts'

// One executable under many names: what it was called by says which plugin it is (multi-call, as busybox).
const called = process.argv0.slice(process.argv0.lastIndexOf('/') + 1)
const io: Io = { env: process.env, stdin: () => readFileSync(0, 'utf8'), answer: toStdout, run, plugin: load }

if (called === 'plumb') {
  const { main } = await import('../cli/index.ts')
  process.exitCode = await main(process.argv.slice(2))
} else {
  const plugin = await load(called)
  // At once: what is left (a heap to give back, tools that were started ahead and not needed) goes with the process.
  if (plugin) process.exit(await serve(plugin, io))
  else {
    log(`plumb has no plugin ${JSON.stringify(called)}: link the executable under the name of one`)
    process.exitCode = 1
  }
}

async function load(name: string): Promise<Plugin | undefined> {
  if (!/^[a-z][a-z-]*$/.test(name) || name === 'index') return undefined
  try {
    return ((await import(`./${name}.ts`)) as { default: Plugin }).default
  } catch (cause) {
    if ((cause as { code?: string }).code === 'ERR_MODULE_NOT_FOUND' || /Cannot find module/.test((cause as Error).message)) return undefined
    throw cause
  }
}
