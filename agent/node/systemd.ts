import { datagram } from '../../lib/os/datagram.ts'
import { log } from '../../lib/os/log.ts'

/** How the node stands, and why not better. */
interface Condition {
  readonly state: string
  readonly reasons: readonly string[]
  readonly degraded: readonly string[]
}

/** A line for people. */
const MOST = 500

/** Tells systemd how the node stands, in the line that `systemctl status` shows, whenever that is something else. */
export function makeTeller(): (now: Condition) => void {
  let last = ''
  return ({ state, reasons, degraded }) => {
    const text = `STATUS=${[state, [...reasons, ...degraded].join('; ').replace(/\s+/g, ' ').slice(0, MOST)].filter(Boolean).join(': ')}`
    if (text !== last) notify(text)
    last = text
  }
}

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
