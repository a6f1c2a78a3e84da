import { warn } from '../../lib/os/log.ts'
import { datagram } from '../../lib/os/sockets.ts'

/** The state of the node, and the reasons when it is not the best state. */
interface Condition {
  readonly state: string
  readonly reasons: readonly string[]
  readonly degraded: readonly string[]
}

/** The longest reason in characters, so that the line stays readable. */
const MOST = 500

/**
 * Makes a function that tells systemd the state of the node. `systemctl status` shows the line. It is sent only when it
 * changes.
 */
export function makeReadinessNotifier(): (now: Condition) => void {
  let last = ''
  return ({ state, reasons, degraded }) => {
    const why = [...reasons, ...degraded].join('; ').replace(/\s+/g, ' ').slice(0, MOST)
    const text = `STATUS=${[state, why].filter(Boolean).join(': ')}`
    if (text !== last) notify(text)
    last = text
  }
}

/**
 * Sends lines to systemd (sd_notify(3): `READY=1`, `STATUS=…`, one per line). Does nothing without `NOTIFY_SOCKET`.
 * Units with `Type=notify` set it, such as flannel's. Never throws.
 */
export function notify(...lines: readonly string[]): void {
  const { NOTIFY_SOCKET: path } = process.env
  if (!path) return
  try {
    datagram(path, lines.join('\n'))
  } catch (cause) {
    warn(`agent: Cannot tell systemd at ${path}: ${(cause as Error).message}`)
  }
}
