import { mkdirSync, readdirSync, rmSync } from 'node:fs'

/** Where it listens, and the folder with a file for each lease that it holds. */
export const DAEMON = '/run/fuzz-dhcp.sock'
export const HELD = '/run/fuzz-dhcp.held'

/**
 * A DHCP daemon without servers: it gives everybody the same, and keeps only who has it. It works in a thread of its
 * own, because a plugin stops its thread until the daemon answers.
 */
export async function leaseDaemon(): Promise<{ held(): string[]; clear(): void; stop(): void }> {
  mkdirSync(HELD, { recursive: true })
  const worker = new Worker(new URL('./daemon-thread.ts', import.meta.url).href)
  await new Promise((resolve) => worker.addEventListener('message', resolve, { once: true }))
  return {
    held: () => readdirSync(HELD),
    clear() {
      for (const name of readdirSync(HELD)) rmSync(`${HELD}/${name}`)
    },
    stop: () => worker.terminate(),
  }
}
