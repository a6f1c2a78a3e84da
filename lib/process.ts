import { type Io, serve } from './cni.ts'
import { beginCall } from './deadline.ts'
import { run } from './exec.ts'
import { fs } from './fs.ts'
import type { Plugin } from './plugin.ts'
import { toStdout } from './stdout.ts'

/** Serves the CNI call that this process was started for, as the plugin of a name; `load` finds the executable's plugins. Its answer is the exit status. */
export async function serveProcess(name: string, load: Io['plugin']): Promise<0 | 1> {
  beginCall()
  const io: Io = { env: process.env, stdin: () => fs.readAllSync(0), answer: toStdout, run, plugin: load }
  return serve((await load(name)) as Plugin, io)
}
