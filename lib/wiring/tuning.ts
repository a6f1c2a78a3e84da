import * as v from 'valibot'
import type { Attachment } from '../cni/plugin.ts'
import { isAnothers } from '../journal/journal.ts'
import { isLink } from '../os/link-state.ts'
import { log } from '../os/log.ts'
import { readRegular } from '../os/reading.ts'
import type { Run } from '../os/run.ts'
import { apply } from '../state/apply.ts'
import type { Settings } from '../state/kinds/setting.ts'
import { keepSaved, savedPath } from '../state/tuning-file.ts'
import { CniError, CODE, shown, ValueError } from '../text/errors.ts'
import { field } from '../text/shape.ts'
import type { IfName } from '../text/values.ts'
import { ALLOW_LIST } from './allow-list.ts'

/** A sysctl of a configuration: the name as written, and the value. */
export type SysctlWish = readonly [name: string, value: string]

/** Reads `sysctl` of tuning's configuration: names and values, both as text. Throws ValueError. */
export function readSysctls(value: unknown): SysctlWish[] {
  if (typeof value !== 'object' || value === null || Array.isArray(value))
    throw new ValueError(`${shown(value)}: want an object of sysctl names and values, both texts`)
  return Object.entries(value).map(([name, one]) => {
    if (typeof one !== 'string' || /[\0\n]/.test(one) || one.length > 4095)
      throw new ValueError(`${shown({ [name]: one })}: want a text such as "512" as its value`)
    fileOf(name, '' as IfName)
    return [name, one]
  })
}

/**
 * The file of a sysctl below /proc/sys/net (`ipv4/ip_forward`). The first separator decides, as in sysctl(8). So eth0.7
 * is one word in `net/ipv4/conf/eth0.7/arp_filter` and in `net.ipv4.conf.eth0/7.arp_filter`. IFNAME stands for the
 * attachment's interface. Throws ValueError for a name outside net.
 */
export function fileOf(name: string, ifname: IfName): string {
  const first = /[./]/.exec(name)?.[0]
  const path = first === '.' ? name.replace(/[./]/g, (one) => (one === '.' ? '/' : '.')) : name
  const [root, ...rest] = path.split('/')
  if (root !== 'net' || rest.length === 0 || rest.some((word) => /^\.{0,2}$/.test(word)) || /[\0\n]/.test(name))
    throw new ValueError(`${shown(name)}: want the name of a sysctl below net, such as net.core.somaxconn`)
  return rest.join('/').replaceAll('IFNAME', ifname)
}

/**
 * Refuses a sysctl that the node's list does not have. An expression of the list may match anywhere in the name as
 * written. Throws CniError 7.
 */
export function refuseForbidden(wishes: readonly SysctlWish[], allowed: readonly RegExp[] | undefined): void {
  const other = allowed && wishes.find(([name]) => !allowed.some((one) => one.test(name)))
  if (other)
    throw new CniError(
      CODE.config,
      `Sysctl ${shown(other[0])} is not allowed`,
      `${ALLOW_LIST} allows those that match one of: ${allowed.map(({ source }) => source).join(' ')}`,
    )
}

/**
 * Restores the values that the reference plugin noted for an attachment, as far as its link exists. Then the note goes.
 */
export async function restoreSaved(dataDir: string, at: Attachment, run: Run): Promise<void> {
  const path = savedPath(dataDir, at)
  const text = textOf(path)
  // The path names no network, so the note may be that of an attachment to another network.
  if (text === undefined || isAnothers(at)) return
  const { netns: ns, ifname: dev } = at
  const before = settingsIn(text)
  if (before && ns !== undefined && isLink(dev, ns))
    await apply({ put: [], drop: [{ kind: 'setting', ns, dev, before }] }, run)
  keepSaved({ kind: 'saved', ns: 'host', path, text }, false)
}

// The path cannot exist, so no note was written. DEL must not fail for a folder that ADD refused.
function textOf(path: string): string | undefined {
  try {
    return readRegular(path)
  } catch (cause) {
    log(`plumb: Cannot use ${path}: ${(cause as Error).message}`)
    return undefined
  }
}

const number = v.exactOptional(field.int(0, 2 ** 32 - 1))
const noted = v.object({
  mac: v.exactOptional(field.mac),
  mtu: number,
  txQLen: number,
  promisc: v.exactOptional(field.flag),
  allmulti: v.exactOptional(field.flag),
})

// A truncated file has no usable values.
function settingsIn(text: string): Settings | undefined {
  try {
    return v.parse(noted, JSON.parse(text))
  } catch (cause) {
    log(`plumb: Cannot read what another tuning noted: ${(cause as Error).message}`)
    return undefined
  }
}
