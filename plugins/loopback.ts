import * as v from 'valibot'
import { type Attachment, definePlugin } from '../lib/cni/plugin.ts'
import type { Result } from '../lib/cni/result.ts'
import { decode } from '../lib/cni/versions.ts'
import { addressesNow } from '../lib/os/link-addresses.ts'
import { linkFacts } from '../lib/os/links.ts'
import { inside } from '../lib/os/netns.ts'
import { setUp } from '../lib/os/sockets.ts'
import { CniError, CODE } from '../lib/text/errors.ts'
import { type Cidr, split } from '../lib/text/ip.ts'
import { common, type Shape } from '../lib/text/shape.ts'
import type { NetnsPath } from '../lib/text/values.ts'

const keys = v.looseObject(common)
type Conf = v.InferOutput<typeof keys>

/**
 * The plugin `loopback` (upstream plugins/main/loopback). It asks and tells the kernel itself: a process of `ip` would
 * take half of the call.
 */
export default definePlugin<Conf>({
  role: 'custom',
  about: "CNI plugin loopback: brings the container's lo up, whatever CNI_IFNAME says (kubelet sends eth0)",
  conf: keys as unknown as Shape<Conf>,
  async add(conf, at) {
    const given = conf.prevResult === undefined ? undefined : decode(conf.prevResult, conf.cniVersion)
    const lo = inside(at.netns as NetnsPath, () => bringUp(at))
    return given ?? result(at, lo)
  },
  async check(_conf, at) {
    if (!inside(at.netns as NetnsPath, () => facts(at)).isUp)
      throw new CniError(CODE.internal, `Cannot confirm lo in ${at.netns}: it is down`, 'want it up, as ADD left it')
  },
  async del(_conf, at) {
    if (at.netns) inside(at.netns, () => set(at, false))
  },
  preview(command, conf, at) {
    const ns = at.netns as NetnsPath
    if (command === 'DEL')
      return { work: at.netns ? [{ ns, lines: [{ text: 'set lo down', about: 'lo goes down' }] }] : [] }
    const given = conf.prevResult === undefined ? undefined : decode(conf.prevResult, conf.cniVersion ?? '0.1.0')
    const lines = [
      { text: 'read lo', about: 'its addresses: none may be but loopback ones' },
      { text: 'set lo up', about: 'lo comes up' },
      { text: 'read lo', about: 'the addresses that it has now' },
    ]
    return { work: [{ ns, lines }], result: given ?? result(at, LO) }
  },
})

/** What a result says of lo. */
interface Loopback {
  readonly mtu: number
  readonly addresses: readonly Cidr[]
}
// The kernel's defaults.
const LO: Loopback = { mtu: 65536, addresses: ['127.0.0.1/8', '::1/128'] as Cidr[] }

// The functions from here on work in the pod's namespace.
function bringUp(at: Attachment): Loopback {
  const { index, isUp, mtu } = facts(at)
  const before = addressesOf(index)
  const foreign = before.find((address) => !isLoopback(address))
  if (foreign)
    throw new CniError(
      CODE.config,
      `loopback interface is already configured with non-loopback address ${foreign}`,
      'remove it from lo first',
    )
  if (isUp) return { mtu, addresses: before }
  set(at, true)
  return { mtu, addresses: addressesOf(index) }
}

function facts({ netns }: Attachment): NonNullable<ReturnType<typeof linkFacts>> {
  const found = linkFacts('lo')
  if (!found) throw new CniError(CODE.internal, `Cannot see lo in ${netns}`, 'the kernel has no link of this name')
  return found
}

function addressesOf(index: number): Cidr[] {
  return addressesNow(index).map(({ cidr }) => cidr)
}

function isLoopback(address: Cidr): boolean {
  const { ip } = split(address)
  return ip.startsWith('127.') || ip === '::1'
}

function set({ netns }: Attachment, isUp: boolean): void {
  try {
    setUp('lo', isUp)
  } catch (cause) {
    const message = `Cannot set lo ${isUp ? 'up' : 'down'} in ${netns}`
    throw new CniError(CODE.internal, message, (cause as Error).message, { cause })
  }
}

function result(at: Attachment, { mtu, addresses }: Loopback): Result {
  return {
    interfaces: [{ name: 'lo', mac: '00:00:00:00:00:00', mtu, sandbox: at.netns as string }],
    ips: addresses.map((address) => ({ interface: 0, address })),
  }
}
