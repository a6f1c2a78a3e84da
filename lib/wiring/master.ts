import * as v from 'valibot'
import { argument } from '../cni/environment.ts'
import type { Attachment, NodeFacts } from '../cni/plugin.ts'
import { CniError, CODE, shown, ValueError } from '../text/errors.ts'
import { field } from '../text/shape.ts'
import { type IfName, type Mac, type Netns, parse } from '../text/values.ts'
import { nodeFacts } from './node-facts.ts'

/** The keys that name the master of a pod's link and its MTU. A plugin spreads them into its shape. */
export const masterKeys = {
  master: field.filled(parse.ifname),
  // 0 means the master's MTU.
  mtu: v.optional(field.int(0, 65535), 0),
  linkInContainer: v.optional(field.flag, false),
}
/** The values of `masterKeys`. */
export interface OnMaster {
  readonly master?: IfName | undefined
  readonly mtu: number
  readonly linkInContainer: boolean
}

/** The master of a pod's link. */
export interface Master {
  readonly name: IfName
  readonly ns: Netns
  readonly mtu: number
  readonly mac: Mac
}

/**
 * Finds the master: the named link, else the link of the default route. With `linkInContainer` it is a link of the pod.
 * Throws CniError 7 when there is no master or it cannot carry another link. Throws ValueError for an `mtu` above that
 * of the master.
 */
export function masterOf(
  { master, mtu, linkInContainer }: OnMaster,
  { netns }: Pick<Attachment, 'netns'>,
  node: NodeFacts,
): Master {
  const ns: Netns = linkInContainer && netns !== undefined ? netns : 'host'
  const where = ns === 'host' ? 'on the node' : `in ${ns}`
  const name = master ?? node.defaultDevice?.(ns)
  if (name === undefined)
    throw new CniError(
      CODE.config,
      `Cannot choose a master: no default route ${where}`,
      'set "master" to the link that the pod\'s stands on',
    )
  const found = node.link?.(name, ns)
  if (!found)
    throw new CniError(
      CODE.config,
      `Cannot find the master ${shown(name)} ${where}: there is no such link`,
      `want the name of an Ethernet link ${where}${ns === 'host' ? '' : ' ("linkInContainer" is true)'}`,
    )
  if (!found.isEthernet)
    throw new CniError(
      CODE.config,
      `Cannot use the master ${shown(name)} ${where}: it is no Ethernet link`,
      'set "master" to one that is',
    )
  if (mtu > found.mtu)
    throw new ValueError(`Cannot use mtu ${mtu}: want 0 to ${found.mtu}, the mtu of its master ${name}`)
  return { name, ns, mtu: found.mtu, mac: found.mac }
}

/**
 * Throws CniError 50 when the node has no such master. A master inside a pod is not checked, because it exists only
 * with the pod.
 */
export function masterReady(conf: OnMaster): void {
  if (conf.linkInContainer) return
  try {
    masterOf({ ...conf, mtu: 0 }, {}, nodeFacts)
  } catch (cause) {
    const { message, details } = cause as CniError
    throw new CniError(CODE.notReady, message, details, { cause })
  }
}

interface MacKeys {
  readonly mac?: Mac | undefined
  readonly runtimeConfig: { readonly mac?: Mac | undefined }
}

/** The requested MAC address: from the runtime, else from CNI_ARGS, else from the configuration. Throws CniError 4. */
export function askedMac({ mac, runtimeConfig }: MacKeys, at: Pick<Attachment, 'args'>): Mac | undefined {
  return runtimeConfig.mac ?? argument(at, 'MAC', parse.mac) ?? mac
}
