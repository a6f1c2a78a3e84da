import type { Io } from '../cni/call.ts'
import type { Plugin } from '../cni/plugin.ts'
import { beginCall } from '../os/deadline.ts'
import { env } from '../os/door.ts'
import { run } from '../os/exec.ts'
import { fs } from '../os/fs.ts'
import { toStdout } from '../os/stdout.ts'
import { serve } from './serve.ts'

/**
 * Serves the CNI call of this process as the plugin `name`. `load` finds a plugin of this executable by type. Returns
 * the exit status.
 */
export async function serveProcess(name: string, load: Io['plugin']): Promise<0 | 1> {
  beginCall()
  const io: Io = { env, stdin: () => fs.readAllSync(0), answer: toStdout, run, plugin: load }
  return serve((await load(name)) as Plugin, io)
}
