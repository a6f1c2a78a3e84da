import { fs } from '../os/fs.ts'
import { NoAnswer } from '../os/netlink-answer.ts'
import { isThere } from '../os/nftables.ts'
import type { Run } from '../os/run.ts'
import type { Zoned } from '../state/kinds/zoned.ts'
import { CniError, CODE, ExecError } from '../text/errors.ts'

const EPERM = 1
const BUS = '/run/dbus/system_bus_socket'
const AWAY = 'org.freedesktop.DBus.Error\\.(ServiceUnknown|NameHasNoOwner|NoServer|FileNotFound)'
// The errors that mean success. firewalld reports that the source is already in its state (firewall/errors.py). For a
// removal, another zone may have the source. The bus reports that firewalld no longer runs.
const ALREADY = {
  addSource: /\b(ZONE_ALREADY_SET|ALREADY_ENABLED)\b/,
  removeSource: new RegExp(`\\b(UNKNOWN_SOURCE|NOT_ENABLED|INVALID_ZONE|ZONE_CONFLICT)\\b|${AWAY}`),
}

/**
 * Whether firewalld runs on the node. It does when its rules exist and the D-Bus socket exists. Starts no process. A user
 * who is not root, and who may not ask for rules, sees the socket alone.
 */
export function isFirewalldThere(): boolean {
  if (!fs.existsSync(BUS)) return false
  try {
    return isThere('inet', 'firewalld', 'filter_FORWARD') || isThere('ip', 'filter', 'FORWARD_direct')
  } catch (cause) {
    if (cause instanceof NoAnswer && cause.errno === EPERM) return true
    throw cause
  }
}

/**
 * Adds a source to a zone or removes it, in the runtime configuration only (D-Bus org.fedoraproject.FirewallD1.zone).
 * Without firewalld there is nothing to remove. Throws CniError 5 without dbus-send, 7 for an unknown zone or a source
 * of another zone, 11 when firewalld does not answer.
 */
export async function zone(
  method: 'addSource' | 'removeSource',
  { zone, source }: Pick<Zoned, 'zone' | 'source'>,
  run: Run,
): Promise<void> {
  if (method === 'removeSource' && !isFirewalldThere()) return
  const argv = asking(method, zone, source)
  const { status, stderr } = await run(argv, '')
  if (status === 0 || ALREADY[method].test(stderr)) return
  const change = method === 'addSource' ? `put ${source} into` : `take ${source} out of`
  const failed = `Cannot ${change} the zone ${zone} of firewalld`
  if (stderr.includes('INVALID_ZONE'))
    throw new CniError(
      CODE.config,
      `${failed}: there is no such zone`,
      'want one that firewall-cmd --get-zones names; "firewalldZone" is trusted unless it is set',
    )
  if (stderr.includes('ZONE_CONFLICT'))
    throw new CniError(
      CODE.config,
      `${failed}: it is a source of another zone`,
      `firewall-cmd --get-zone-of-source=${source} names that; take it out there, or set "firewalldZone" to it`,
    )
  throw new CniError(
    CODE.tryLater,
    `${failed}: ${stderr.trim() || `dbus-send ended with status ${status}`}`,
    `it was asked so: ${argv.join(' ')}`,
  )
}

/** Whether a zone has a source. False without firewalld or the zone. Throws ExecError when firewalld does not answer. */
export async function isZoned({ zone, source }: Pick<Zoned, 'zone' | 'source'>, run: Run): Promise<boolean> {
  const argv = asking('querySource', zone, source)
  const { status, stdout, stderr } = await run(argv, '')
  if (status === 0) return /\bboolean true\b/.test(stdout)
  if (/\bINVALID_ZONE\b/.test(stderr) || new RegExp(AWAY).test(stderr)) return false
  throw new ExecError(argv, undefined, stderr.trim() || `ended with status ${status}`)
}

/** The argv of the process that calls a method of firewalld. */
export function asking(method: string, zone: string, source: string): string[] {
  return [
    'dbus-send',
    '--system',
    '--print-reply',
    '--dest=org.fedoraproject.FirewallD1',
    '/org/fedoraproject/FirewallD1',
    `org.fedoraproject.FirewallD1.zone.${method}`,
    `string:${zone}`,
    `string:${source}`,
  ]
}
