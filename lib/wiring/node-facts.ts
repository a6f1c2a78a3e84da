import type { Attachment, NodeFacts } from '../cni/plugin.ts'
import { partName, readPart } from '../journal/journal.ts'
import { isFirewalldThere } from '../nft/firewalld.ts'
import { fs } from '../os/fs.ts'
import { floatingMac, type LinkFacts, linkFacts, linkIn } from '../os/links.ts'
import { inside, isNoNamespace } from '../os/netns.ts'
import { readText } from '../os/reading.ts'
import { defaultDevice, deviceTo } from '../os/routes.ts'
import { readSysctl } from '../os/sysctls.ts'
import { type IfName, type Mac, parse } from '../text/values.ts'
import { readAllowList } from './allow-list.ts'

// One plugin call reads these facts several times.
let machineId: string | undefined

/** The node's settings. Each is read on first use. */
export const nodeFacts: NodeFacts = {
  get machineId() {
    machineId ??= readMachineId()
    return machineId
  },
  noted: (type, owner) => readPart(partName(type, owner)) !== undefined,
  get bridgeNf() {
    return ['iptables', 'ip6tables'].some((tables) => readSysctl(`bridge/bridge-nf-call-${tables}`) === '1')
  },
  get hasTun() {
    return fs.existsSync('/dev/net/tun')
  },
  get hasFirewalld() {
    return isFirewalldThere()
  },
  get hasSelinux() {
    return fs.existsSync('/sys/fs/selinux/enforce')
  },
  deviceTo,
  get sysctlsAllowed() {
    return readAllowList()
  },
  link: linkIn,
  floatingMac,
  defaultDevice: (ns) => inside(ns, defaultDevice),
  hostEnd,
}

/**
 * The facts for one ADD. It asks for the MAC of a bridge before it makes links, and keeps the answer: later that MAC may
 * be of its own making.
 */
export function factsOfAdd(): NodeFacts {
  const macs = new Map<IfName, Mac | undefined>()
  const floating = (bridge: IfName) => {
    if (!macs.has(bridge)) macs.set(bridge, floatingMac(bridge))
    return macs.get(bridge)
  }
  // `nodeFacts` is the prototype, so its getters read a fact only when `wire` uses it.
  return Object.create(nodeFacts, { floatingMac: { value: floating } })
}

// machine-id(5). An image without a machine id, or before its first boot, uses the id of this boot. MAC addresses do
// not have to outlive a boot.
function readMachineId(): string {
  const text = readText('/etc/machine-id')?.trim() ?? ''
  return /^[0-9a-f]{32}$/.test(text) ? text : (readText('/proc/sys/kernel/random/boot_id')?.trim() ?? '')
}

// Finds the node's end of a pod's veth by rtnetlink, without a process. The two ends name each other.
function hostEnd({
  netns,
  ifname,
}: Pick<Attachment, 'netns' | 'ifname'>): ReturnType<NonNullable<NodeFacts['hostEnd']>> {
  if (netns === undefined) return undefined
  let inPod: LinkFacts | undefined
  try {
    inPod = linkIn(ifname, netns)
  } catch (cause) {
    // A caller that needs the link reports that its namespace is gone.
    if (isNoNamespace(netns)) return undefined
    throw cause
  }
  const outer = inPod?.on && inPod.isOnElsewhere ? linkFacts(inPod.on) : undefined
  return inPod && outer?.on === inPod.index ? { name: parse.ifname(outer.name), mtu: outer.mtu } : null
}
