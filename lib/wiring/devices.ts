import { fs } from '../os/fs.ts'
import { type LinkFacts, linkIn, linksNow } from '../os/links.ts'
import { listFiles, readText } from '../os/reading.ts'
import { CniError, CODE, shown } from '../text/errors.ts'
import { type IfName, parse } from '../text/values.ts'

/** The ways in which a configuration can name a device of the node. The first one that is set counts. */
export interface DeviceKeys {
  readonly device?: IfName | undefined
  readonly hwaddr?: string | undefined
  readonly kernelpath?: string | undefined
  readonly pciBusID?: string | undefined
  /** The choice of a device plugin: a PCI device, or a device of the auxiliary bus. It counts before `pciBusID`. */
  readonly deviceID?: string | undefined
}
/**
 * The device that was found. `link` is absent when a driver in user space (DPDK) has the device, because such a device
 * has no link.
 */
export interface Device {
  readonly link?: LinkFacts
  /** The device's PCI address, such as `0000:00:1f.6`. Absent for a device that is not on the PCI bus. */
  readonly pciID?: string
}

const PCI = '/sys/bus/pci/devices'
const AUXILIARY = '/sys/bus/auxiliary/devices'
const IN_USER_SPACE = ['vfio-pci', 'uio_pci_generic', 'igb_uio']

/**
 * Finds the device of the node that a configuration names. Throws CniError 7 when it names no device, or a device that
 * does not exist.
 */
export function findDevice(keys: DeviceKeys): Device {
  const { device, hwaddr, kernelpath } = keys
  if (device) return ofLink(linkIn(device, 'host') ?? absent('device', device, 'a link of the node'))
  if (hwaddr) {
    const found = linksNow().find(({ mac, permanent }) => mac === hwaddr || permanent === hwaddr)
    return ofLink(found ?? absent('hwaddr', hwaddr, 'the address of a link of the node'))
  }
  if (kernelpath) {
    const want = 'a path below /sys/devices with a folder "net" and a link of the node in it'
    return ofLink(linkBelow([kernelpath]) ?? absent('kernelpath', kernelpath, want))
  }
  return onBus(keys)
}

/** Whether the device exists, on the node or in a pod. STATUS asks this. A link must be on the node now. */
export function isDevice(keys: DeviceKeys): boolean {
  const { device, hwaddr, kernelpath } = keys
  if (device) return linkIn(device, 'host') !== undefined
  if (hwaddr) return linksNow().some(({ mac, permanent }) => mac === hwaddr || permanent === hwaddr)
  const path = kernelpath ?? placeOf(keys)?.path
  return path === undefined || fs.existsSync(path)
}

function onBus(keys: DeviceKeys): Device {
  const place = placeOf(keys)
  if (!place) {
    const wish = 'want one of "device", "hwaddr", "kernelpath", "pciBusID"'
    throw new CniError(CODE.config, `Cannot choose a device: ${wish}, or the capability "deviceID" in runtimeConfig`)
  }
  const { key, value, path } = place
  const onBuses = 'a device of the PCI bus such as 0000:00:1f.6, or of the auxiliary bus such as mlx5_core.sf.4'
  if (!fs.existsSync(path)) return absent(key, value, onBuses)
  const pci = pciOf(path)
  if (IN_USER_SPACE.includes(driverOf(path))) return { ...pci }
  // The link of a virtio device is below the device that the PCI card carries.
  const below = [path, ...listFiles(path).flatMap((name) => (name.startsWith('virtio') ? `${path}/${name}` : []))]
  const withLink = 'a device that is there and has a link on the node: another container may have it'
  return { link: linkBelow(below) ?? absent(key, value, withLink), ...pci }
}

function placeOf({ pciBusID, deviceID }: DeviceKeys): { key: string; value: string; path: string } | undefined {
  if (deviceID) {
    const paths = [`${PCI}/${deviceID}`, `${AUXILIARY}/${deviceID}`]
    const path = paths.find((one) => fs.existsSync(one)) ?? `${PCI}/${deviceID}`
    return { key: 'runtimeConfig.deviceID', value: deviceID, path }
  }
  return pciBusID ? { key: 'pciBusID', value: pciBusID, path: `${PCI}/${pciBusID}` } : undefined
}

// sysfs shows the links of the namespace in which it was mounted. So a name in sysfs counts only when the link of that
// name here has the same index.
function linkBelow(paths: readonly string[]): LinkFacts | undefined {
  for (const path of paths)
    for (const name of listFiles(`${path}/net`)) {
      const link = linkIn(parse.ifname(name), 'host')
      const fact = (file: string) => readText(`${path}/net/${name}/${file}`)?.trim()
      if (link && String(link.index) === fact('ifindex') && link.mac === fact('address')) return link
    }
  return undefined
}

function ofLink(link: LinkFacts): Device {
  const own = `/sys/class/net/${link.name}`
  return { link, ...(readText(`${own}/ifindex`)?.trim() === String(link.index) ? pciOf(`${own}/device`) : {}) }
}

// A virtio device or an auxiliary device is below its PCI card.
function pciOf(path: string): { pciID?: string } {
  if (!fs.existsSync(path)) return {}
  const pciID = fs
    .realpathSync(path)
    .match(/[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7](?![^/])/g)
    ?.at(-1)
  return pciID === undefined ? {} : { pciID }
}

function driverOf(path: string): string {
  return fs.existsSync(`${path}/driver`) ? (fs.readlinkSync(`${path}/driver`).split('/').at(-1) ?? '') : ''
}

function absent(key: string, value: string, want: string): never {
  throw new CniError(
    CODE.config,
    `Cannot find the device that ${key} ${shown(value)} names: want ${want}`,
    'look for it with ip link; a device that a container has is not on the node',
  )
}
