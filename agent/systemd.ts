import { datagram } from '../lib/datagram.ts'
import { log } from '../lib/log.ts'

/** Tells systemd how things stand (sd_notify(3): `READY=1`, `STATUS=…`, one per line) when it asked for it by `NOTIFY_SOCKET`, as units of flannel with `Type=notify` do. Never throws. */
export function notify(...lines: readonly string[]): void {
  const { NOTIFY_SOCKET: path } = process.env
  if (!path) return
  try {
    datagram(path, lines.join('\n'))
  } catch (cause) {
    log(`agent: Cannot tell systemd at ${path}: ${(cause as Error).message}`)
  }
}
