import * as v from 'valibot'
import { previous, type Result } from '../lib/cni/result.ts'
import { decode } from '../lib/cni/versions.ts'
import { ValueError } from '../lib/text/errors.ts'
import { field } from '../lib/text/shape.ts'
import { parse } from '../lib/text/values.ts'
import { linkKeys } from '../lib/wiring/link-keys.ts'
import { type Master, masterKeys, masterOf, masterReady, type OnMaster } from '../lib/wiring/master.ts'
import { type PodLink, podWiring } from '../lib/wiring/pod-link.ts'
import { definePodPlugin } from '../lib/wiring/pod-plugin.ts'

const conf = v.object({
  ...masterKeys,
  mode: v.optional(field.word('', 'l2', 'l3', 'l3s'), ''),
  ...linkKeys,
  runtimeConfig: v.optional(v.looseObject({}), {}),
})
type Conf = v.InferOutput<typeof conf>

const KIND = 'ipvlan'

/**
 * The plugin `ipvlan` (upstream plugins/main/ipvlan). It may come after another plugin in a list. Without `master` it
 * then uses the link of that plugin as its master. Without a pool it takes the addresses of that plugin.
 */
export default definePodPlugin<Conf>({
  about: 'CNI plugin ipvlan: a link of the container beside one of the node, with the same MAC address',
  conf,
  // The pool reads IP and GATEWAY from the same variable.
  args: ['IP', 'GATEWAY'],
  kind: KIND,
  linkOf: (conf, at, node) => linkOf(conf, masterOf(onto(conf), at, node)),
  wire(conf, at, given, node) {
    // CHECK gets the result of ADD. That result does not name the master.
    const isMade = given.interfaces?.some(({ name, sandbox }) => sandbox && name === at.ifname)
    const master = isMade && conf.master === undefined ? undefined : masterOf(isMade ? conf : onto(conf), at, node)
    const { interfaces: _, ...theirs } = (!isMade && !conf.ipam.type && before(conf)) || given
    return podWiring(linkOf(conf, master), at, conf, isMade ? given : theirs)
  },
  // STATUS does not know the plugins that come before this plugin in a list. It checks only a named master.
  async status(conf) {
    if (conf.master !== undefined) masterReady(conf)
  },
})

function linkOf({ mtu, mode }: Conf, master: Master | undefined): PodLink {
  return {
    type: KIND,
    mtu,
    like: { mode: mode || 'l2' },
    birth: { by: master?.ns ?? 'host', ...(master && { master: master.name }) },
    shown: { ...(master && { mac: master.mac }), mtu: master?.mtu ?? 0 },
  }
}

/** The result of the previous plugin in the list. Throws ValueError. */
function before({ prevResult, cniVersion }: Conf): Result | undefined {
  return prevResult && decode(prevResult, cniVersion)
}

// Without `master`, the only interface in the result of the previous plugin is the master. Throws ValueError when that
// result has no interface, or several.
function onto(conf: Conf): OnMaster {
  const found = conf.master === undefined ? before(conf) : undefined
  if (!found) return conf
  const [first, ...more] = found.interfaces ?? []
  if (!first || more.length > 0) {
    const fact = `prevResult has ${found.interfaces?.length ?? 0} interfaces`
    throw new ValueError(`Cannot choose a master: ${fact}: want "master", or a prevResult with one`)
  }
  return { ...conf, master: previous(parse.ifname, first.name) }
}
