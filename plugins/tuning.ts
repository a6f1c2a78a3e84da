import * as v from 'valibot'
import { argument } from '../lib/cni/environment.ts'
import { type Attachment, definePlugin, type NodeFacts, type Wiring } from '../lib/cni/plugin.ts'
import type { Result } from '../lib/cni/result.ts'
import { type LinkFacts, linkFacts } from '../lib/os/links.ts'
import { inside } from '../lib/os/netns.ts'
import { maybeSysctl } from '../lib/os/sysctls.ts'
import type { Saved } from '../lib/state/kinds/saved.ts'
import type { Setting, Settings } from '../lib/state/kinds/setting.ts'
import type { Sysctl } from '../lib/state/kinds/sysctl.ts'
import { differences } from '../lib/state/observe.ts'
import type { Resource } from '../lib/state/resource.ts'
import { savedPath, savedText } from '../lib/state/tuning-file.ts'
import { CniError, CODE, shown, ValueError } from '../lib/text/errors.ts'
import { repeatedKeys } from '../lib/text/json.ts'
import { common, field } from '../lib/text/shape.ts'
import { type IfName, type Netns, type NetnsPath, parse } from '../lib/text/values.ts'
import { fileOf, readSysctls, refuseForbidden, restoreSaved, type SysctlWish } from '../lib/wiring/tuning.ts'

const mac = v.exactOptional(field.by((text) => (text === '' ? '' : parse.mac(text))))
const flag = v.exactOptional(field.flag)
// The kernel checks the limits of a device.
const size = v.exactOptional(field.int(0, 2 ** 31 - 1))
const wishes = {
  sysctl: v.optional(field.by(readSysctls), {}),
  mac,
  mtu: size,
  promisc: flag,
  allmulti: flag,
  txQLen: size,
}

const keys = v.object({
  ...common,
  ...wishes,
  dataDir: v.optional(
    field.by((text) => v.parse(field.path, text) || DATA_DIR),
    '/run/cni/tuning',
  ),
  runtimeConfig: v.optional(v.looseObject({ mac }), {}),
  args: v.optional(v.looseObject({ cni: v.optional(v.looseObject(wishes), {}) }), {}),
})
type Conf = v.InferOutput<typeof keys>
const DATA_DIR = '/run/cni/tuning'

/** The plugin `tuning` (upstream plugins/meta/tuning). */
export default definePlugin<Conf>({
  role: 'chained',
  type: 'tuning',
  fused: { key: 'tuning', place: 4, capability: 'mac', args: true },
  about: 'CNI plugin tuning: sysctls of the container, and address, MTU, queue and modes of its link',
  conf: keys,
  // The pool reads IP and GATEWAY from the same variable.
  args: ['MAC', 'IP', 'GATEWAY'],
  wire,
  look,
  judge(text, key) {
    const is = (word: string) => (one: string) => one.toLowerCase() === word
    const paths = repeatedKeys(text).flatMap(([first = '', ...more]) => {
      if (key === undefined || is('args')(first)) return [[first, ...more]]
      return is(key)(first) ? [more] : []
    })
    const path = paths.find(
      ([first = '', ...more]) => is('sysctl')(first) || (is('args')(first) && more.some(is('sysctl'))),
    )
    if (path)
      throw new ValueError(`Cannot read ${shown(path.join('.'))}: the key stands there twice; want each sysctl once`)
  },
  async unwireForeign({ dataDir = DATA_DIR }, at, run) {
    await restoreSaved(dataDir, at, run)
  },
  // The reference plugin does not change the node's end of the link.
  checkForeign: (conf, at, given, run) => {
    const inPod = wire(conf, at, given, { bridgeNf: false }).own.filter(({ ns }) => ns === at.netns)
    return differences(inPod, run)
  },
})

/** The sysctls and link settings of one attachment. Pure. */
function wire(conf: Conf, at: Attachment, given: Result, { before, sysctlsAllowed }: NodeFacts): Wiring {
  const ns = at.netns as NetnsPath
  const want = settingsOf(conf, at)
  const sysctls = wished(conf)
  if (sysctls.length > 0) refuseForbidden(sysctls, sysctlsAllowed)
  const was = settingIn(before, ns, at.ifname)
  // When `look` found the pod's link, it also searched for the other end.
  const outer = () => (was ? before?.find(isOuter)?.dev : otherEnd(at, given))
  const host = want.mtu === undefined ? undefined : outer()
  const isChanged = Object.keys(want).length > 0
  const link = isChanged ? [...noted(conf, at, want, before, was), setting(ns, at.ifname, want, was)] : []
  return {
    shared: [],
    own: [
      ...files(sysctls, at, before, was !== undefined),
      ...link,
      ...(host ? [setting('host', host, { mtu: want.mtu as number }, settingIn(before, 'host', host))] : []),
    ],
    result: adjusted(given, at.ifname, host, want),
  }
}

/**
 * The pod's link, the sysctls, and the node's end of a veth. Each has its value from before the first ADD of tuning.
 */
function look(conf: Conf, at: Attachment, given: Result, earlier: readonly Resource[]): Resource[] {
  const ns = at.netns as NetnsPath
  const names = [...new Set(wished(conf).map(([name]) => fileOf(name, at.ifname)))]
  const { link, values } = inside(ns, () => ({
    link: linkFacts(at.ifname),
    values: names.map((name) => ({ name, value: maybeSysctl(name) })),
  }))
  const host = settingsOf(conf, at).mtu === undefined ? undefined : otherEnd(at, given)
  const outer = host === undefined ? undefined : linkFacts(host)
  const isPair = link?.kind === 'veth' && outer?.kind === 'veth' && outer.index === link.on && link.index === outer.on
  const sysctls = values.flatMap(({ name, value }): Sysctl[] => {
    if (value === undefined) return []
    const known = earlier.find((one): one is Sysctl => one.kind === 'sysctl' && one.name === name)
    return [{ kind: 'sysctl', ns, name, value: known?.before ?? value }]
  })
  return [
    ...sysctls,
    ...(link ? [seen(ns, at.ifname, link, earlier)] : []),
    ...(host && isPair ? [seen('host', host, outer, earlier)] : []),
  ]
}

function seen(
  ns: Netns,
  dev: IfName,
  { mac, mtu, txQLen, promisc, allmulti }: LinkFacts,
  earlier: readonly Resource[],
): Setting {
  return { kind: 'setting', ns, dev, mac, mtu, txQLen, promisc, allmulti, ...settingIn(earlier, ns, dev)?.before }
}

// An empty text counts as absent.
function settingsOf({ args: { cni }, runtimeConfig, ...conf }: Conf, at: Attachment): Settings {
  const address = cni.mac ?? (runtimeConfig.mac || argument(at, 'MAC', parse.mac) || conf.mac)
  const mtu = cni.mtu ?? conf.mtu
  const txQLen = cni.txQLen ?? conf.txQLen
  const allmulti = cni.allmulti ?? conf.allmulti
  const promisc = cni.promisc ?? conf.promisc
  return {
    ...(address && { mac: address }),
    ...(mtu && { mtu }),
    ...(txQLen !== undefined && { txQLen }),
    ...(promisc && { promisc }),
    ...(allmulti !== undefined && { allmulti }),
  }
}

function wished({ sysctl, args: { cni } }: Conf): SysctlWish[] {
  return [...new Map([...sysctl, ...cni.sysctl])]
}

function files(
  wishes: readonly SysctlWish[],
  at: Attachment,
  before: readonly Resource[] | undefined,
  isThere: boolean,
): Sysctl[] {
  const made = new Map<string, Sysctl>()
  for (const [written, value] of wishes) {
    const name = fileOf(written, at.ifname)
    if (made.has(name))
      throw new ValueError(`Cannot set sysctl ${shown(written)} twice: it stands there in two spellings; want one`)
    const was = before?.find((one): one is Sysctl => one.kind === 'sysctl' && one.name === name)?.value
    if (isThere && was === undefined)
      throw new CniError(
        CODE.config,
        `Cannot set sysctl ${shown(written)}: this kernel has none of that name`,
        `looked for /proc/sys/net/${name} in ${at.netns}`,
      )
    // A sysctl of the link belongs to this attachment. Another attachment may rely on a sysctl of the whole pod, so
    // that sysctl stays.
    const isOfLink = name.split('/').includes(at.ifname)
    made.set(name, {
      kind: 'sysctl',
      ns: at.netns as NetnsPath,
      name,
      value,
      ...(was ? { before: was, ...(isOfLink ? {} : { stays: true }) } : {}),
    })
  }
  return [...made.values()]
}

function setting(ns: Netns, dev: IfName, want: Settings, was: Setting | undefined): Setting {
  const otherwise = was ? Object.entries(want).filter(([key, value]) => was[key as keyof Settings] !== value) : []
  if (!was || otherwise.length === 0) return { kind: 'setting', ns, dev, ...want }
  const before = Object.fromEntries(otherwise.map(([key]) => [key, was[key as keyof Settings]]))
  return { kind: 'setting', ns, dev, ...want, before }
}

// Without `before` this call makes the link. Then there is nothing to restore, and the reference plugin needs no file.
function noted(
  { dataDir }: Conf,
  at: Attachment,
  want: Settings,
  before: readonly Resource[] | undefined,
  was: Setting | undefined,
): Saved[] {
  return before ? [{ kind: 'saved', ns: 'host', path: savedPath(dataDir, at), text: savedText(want, was) }] : []
}

function isOuter(one: Resource): one is Setting {
  return one.kind === 'setting' && one.ns === 'host'
}

function settingIn(resources: readonly Resource[] | undefined, ns: Netns, dev: IfName): Setting | undefined {
  return resources?.find((one): one is Setting => one.kind === 'setting' && one.ns === ns && one.dev === dev)
}

// As in the results of bridge and ptp: the interface before the pod's link is the other end of the pair.
function otherEnd({ ifname }: Attachment, { interfaces = [] }: Result): IfName | undefined {
  const inPod = interfaces.findIndex(({ name, sandbox }) => sandbox && name === ifname)
  const before = interfaces[inPod - 1]
  return before && !before.sandbox && /^[\w.-]+$/.test(before.name) ? parse.ifname(before.name) : undefined
}

function adjusted(given: Result, ifname: IfName, host: IfName | undefined, { mac, mtu }: Settings): Result {
  const { interfaces } = given
  if (!interfaces || (mac === undefined && mtu === undefined)) return given
  return {
    ...given,
    interfaces: interfaces.map((one) => {
      if (one.name === ifname) return { ...one, ...(mac && { mac }), ...(mtu && { mtu }) }
      return mtu && host !== undefined && one.name === host && !one.sandbox ? { ...one, mtu } : one
    }),
  }
}
