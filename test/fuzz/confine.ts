import assert from 'node:assert/strict'
import { execa } from 'execa'

/**
 * Makes everything but /run and /tmp read-only for this process: a hostile configuration may name any path, a device's
 * too.
 */
export async function confine(): Promise<void> {
  assert.equal(process.env['PLUMB_SANDBOX'], '1', 'run it with `bun test/run.ts FILE`: it needs namespaces of its own')
  await execa('mount', ['--bind', '/tmp', '/tmp'])
  for (const place of ['/', '/dev']) await execa('mount', ['-o', 'remount,bind,ro', place])
}
