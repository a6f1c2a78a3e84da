import * as v from 'valibot'
import { chooseDns } from '../lib/cni/dns.ts'
import { type Attachment, definePlugin, type Wiring } from '../lib/cni/plugin.ts'
import type { Interface, Result } from '../lib/cni/result.ts'
import { entries, LINK } from '../lib/journal/journal.ts'
import { isLink } from '../lib/os/link-state.ts'
import { netnsState } from '../lib/os/netns.ts'
import { apply } from '../lib/state/apply.ts'
import type { Link } from '../lib/state/kinds/link.ts'
import type { Lent } from '../lib/state/kinds/link-shape.ts'
import { CniError, CODE, shown, ValueError } from '../lib/text/errors.ts'
import { field } from '../lib/text/shape.ts'
import { type NetnsPath, parse } from '../lib/text/values.ts'
import { findDevice, isDevice } from '../lib/wiring/devices.ts'
import { givingBack, givingBackForeign, movedDevice } from '../lib/wiring/host-device.ts'
import { linkKeys } from '../lib/wiring/link-keys.ts'
import { podSide } from '../lib/wiring/pod.ts'

const conf = v.object({
  device: field.filled(parse.ifname),
  hwaddr: field.filled(hardware),
  kernelpath: field.filled(sysPath),
  pciBusID: field.filled(pciAddress),
  ...linkKeys,
  runtimeConfig: v.optional(v.looseObject({ deviceID: field.filled(busName) }), {}),
})
type Conf = v.InferOutput<typeof conf>

/** The plugin `host-device` (upstream plugins/main/host-device). */
export default definePlugin<Conf>({
  role: 'interface',
  about: 'CNI plugin host-device: a device of the node is the container’s for as long as that lives',
  conf,
  // The pool reads IP and GATEWAY from the same variable.
  args: ['IP', 'GATEWAY'],
  movesDevice: true,
  wire,
  unwire: (owner) => givingBack(owner),
  async unwireForeign(_conf, at, run) {
    await apply({ put: [], drop: givingBackForeign(at) }, run)
  },
  async status({ name, runtimeConfig: { deviceID }, ...keys }) {
    const { device, hwaddr } = keys
    const hasAddress = ({ mac, permanent }: Lent) => hwaddr !== undefined && [mac, permanent].includes(hwaddr)
    const isNamed = (lent: Lent) => lent.name === device || hasAddress(lent)
    const isLent = entries(name).some(({ parts }) =>
      parts[LINK]?.own.some((one) => one.kind === 'link' && one.lent !== undefined && isNamed(one.lent)),
    )
    if (isLent || isDevice({ ...keys, deviceID })) return
    const fact = 'neither the node nor a container of it has the one that its configuration names'
    throw new CniError(CODE.notReady, `Network ${name} has no device: ${fact}`, 'look for it with ip link')
  },
})

/**
 * The resources of one pod: the device, under the pod's name for it. Pure, except for the search for the device. An
 * interface in `given` means that the pod has the device already. This is so in CHECK, and in ADD after the move.
 */
function wire(conf: Conf, at: Attachment, given: Result): Wiring {
  const ns = at.netns as NetnsPath
  const made = given.interfaces?.find(({ name, sandbox }) => sandbox && name === at.ifname)
  const answer = (one: Interface): Result => ({
    interfaces: [one],
    ips: (given.ips ?? []).map((ip) => ({ ...ip, interface: 0 })),
    ...(given.routes && { routes: given.routes }),
    ...chooseDns(conf.dns, given.dns),
  })
  // A device with a driver in user space has no MAC and no MTU.
  if (made) {
    const link: Link = { kind: 'link', ns, name: at.ifname, type: 'lent', ...known(made.mac), up: true }
    return { shared: [], own: made.mac || made.mtu ? podLinks(link, given) : [], result: answer(made) }
  }
  if (netnsState(ns) === 'pod' && isLink(at.ifname, ns))
    throw new CniError(
      CODE.env,
      `Cannot create ${at.ifname} in ${ns}: a link of that name is there already`,
      'it is left as it is; delete it, or use another CNI_IFNAME',
    )
  const { runtimeConfig, device, hwaddr, kernelpath, pciBusID } = conf
  const { link, pciID } = findDevice({ device, hwaddr, kernelpath, pciBusID, deviceID: runtimeConfig.deviceID })
  const shape = { name: at.ifname, sandbox: ns, ...(pciID && { pciID }) }
  if (!link) return { shared: [], own: [], result: answer(shape) }
  return {
    shared: [],
    own: [movedDevice(link, at), ...podLinks({ kind: 'link', ns, name: at.ifname, type: 'lent', up: true }, given)],
    result: answer({ ...shape, ...(link.mac && { mac: link.mac }), mtu: link.mtu }),
  }
}

function podLinks(link: Link, given: Result): Wiring['own'] {
  return (given.ips ?? []).length > 0 ? podSide(link, given, false) : [link]
}

// CHECK compares only Ethernet addresses. An InfiniBand address has 20 bytes, and a tunnel has no address.
function known(mac: string | undefined): Pick<Link, 'mac'> {
  try {
    return { mac: parse.mac(mac) }
  } catch {
    return {}
  }
}

// The lengths that the kernel shows: 6 bytes, or 8 or 20 bytes for InfiniBand.
function hardware(text: unknown): string {
  return matching(
    text,
    /^([0-9a-f]{2}[:-]){5}[0-9a-f]{2}$|^([0-9a-f]{2}[:-]){7}[0-9a-f]{2}$|^([0-9a-f]{2}[:-]){19}[0-9a-f]{2}$|^([0-9a-f]{4}\.){2}[0-9a-f]{4}$/i,
    'the address of a device such as 02:00:0a:f4:00:02',
  )
    .toLowerCase()
    .replace(/[:.-]/g, '')
    .replace(/..(?!$)/g, '$&:')
}

function pciAddress(text: string): string {
  const want = 'an address of the PCI bus such as 0000:00:1f.6'
  return matching(text, /^[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$/i, want).toLowerCase()
}

function busName(text: string): string {
  const want = 'a PCI address such as 0000:00:1f.6, or a name of the auxiliary bus such as mlx5_core.sf.4'
  return matching(text, /^\w[\w:.-]{0,99}$/, want)
}

function sysPath(text: unknown): string {
  const path = matching(text, /^\/sys\/devices\/[^\0]+$/, 'a path below /sys/devices/')
  if (path.split('/').includes('..'))
    throw new ValueError(`${shown(text)}: want a path below /sys/devices/ without ".."`)
  return path.replace(/\/+$/, '')
}

function matching(text: unknown, pattern: RegExp, want: string): string {
  if (typeof text !== 'string' || !pattern.test(text)) throw new ValueError(`${shown(text)}: want ${want}`)
  return text
}
