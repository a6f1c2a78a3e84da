import { closeSync, existsSync, openSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { type Namespace, until } from '../../support/harness.ts'
import { patient } from '../../support/patience.ts'

/** Processes of a node, each with a log, in the order in which they were started. */
export interface Daemons {
  /**
   * Starts one, and waits until it does what it is for; rejects with the end of its log when it ends, or does not
   * within two minutes.
   */
  start(
    name: string,
    argv: readonly string[],
    ready: () => Promise<unknown> | unknown,
    env?: Readonly<Record<string, string>>,
  ): Promise<void>
  /** The end of a log. */
  log(name: string): string
  /** Ends all, the last one first. */
  stop(): Promise<void>
}

/** Daemons in a namespace, with their logs in a folder. */
export function daemonsOf({ path }: Namespace, dir: string): Daemons {
  const running: Bun.Subprocess[] = []
  const log = (name: string) =>
    existsSync(join(dir, `${name}.log`)) ? readFileSync(join(dir, `${name}.log`), 'utf8').slice(-4000) : ''
  return {
    log,
    async start(name, argv, ready, env = {}) {
      const file = openSync(join(dir, `${name}.log`), 'a')
      const child = Bun.spawn(['nsenter', `--net=${path}`, '--', ...argv], {
        cwd: dir,
        env: { PATH: '/usr/sbin:/usr/bin:/sbin:/bin', HOME: dir, ...env },
        stdio: ['ignore', file, file],
      })
      closeSync(file)
      running.push(child)
      await until(async () => {
        if (child.exitCode !== null) return true
        await ready()
        return true
      }, 120_000).catch((cause) => {
        throw new Error(`${name} is not ready: ${cause.message}\n${log(name)}`)
      })
      if (child.exitCode !== null) throw new Error(`${name} ended with ${child.exitCode}\n${log(name)}`)
    },
    async stop() {
      for (const child of running.reverse()) {
        child.kill('SIGTERM')
        const isOver = await Promise.race([child.exited.then(() => true), Bun.sleep(patient(30_000)).then(() => false)])
        if (!isOver) child.kill('SIGKILL')
        await child.exited
      }
    },
  }
}
