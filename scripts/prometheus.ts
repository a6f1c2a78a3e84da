import { existsSync } from 'node:fs'
import { unpack } from './unpack.ts'

/** The folder of an unpacked Prometheus. `prometheus` and `promtool` are in its `usr/bin`. */
export const PROMETHEUS = process.env['PLUMB_PROMETHEUS'] ?? '/var/cache/plumb/prometheus'

/**
 * Unpacks Prometheus outside the checkout, and prints a line on stderr. Does nothing when the folder exists. Installed,
 * it would start a service. Throws Error when the unpacking fails.
 */
export async function unpackPrometheus(): Promise<void> {
  if (existsSync(PROMETHEUS)) return
  process.stderr.write(
    `setup: unpacking Prometheus in ${PROMETHEUS} (the tests check the alerts of conf/monitoring with it; it is not installed)\n`,
  )
  await unpack(PROMETHEUS, ['prometheus'])
}
