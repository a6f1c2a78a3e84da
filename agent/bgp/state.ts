import { contains, isSix } from '../../lib/text/cidr.ts'
import { type Cidr, type Ip, split } from '../../lib/text/ip.ts'
import { firstOf } from '../../lib/text/listing.ts'
import { networksOnLink, onLink } from '../backend/peers.ts'
import type { Uplink } from '../backend/uplink.ts'
import type { KindName } from '../cluster/kinds.ts'
import type { Labels } from '../cluster/reading.ts'
import type { ObjectSource } from '../cluster/source.ts'
import { both } from '../lease/families.ts'
import type { Lease } from '../lease/lease.ts'
import type { Reached } from '../services/reached.ts'
import { type BirdConf, birdConf, type Ways } from './bird-conf.ts'
import { usesLabels } from './selection.ts'
import type { BgpSource } from './source.ts'

/** What BGP reads of the cluster. */
export const BGP_KINDS: readonly KindName[] = ['nodes']
/** The routes of other programs that one sentence names. */
const NAMED = 3

/** What stays the same while the agent runs. */
export interface FixedInputs {
  /** The path of the configuration, as sentences name it. */
  readonly path: string
  readonly node: string
  /** The networks of the pods. */
  readonly networks: readonly Cidr[]
  /** How routes of BIRD lead to other nodes. Undefined where the backend's peers need more than routes. */
  readonly byBird: Omit<Ways, 'onLink'> | undefined
  /** Who knows the addresses of Services that this node serves. Undefined without Services, `reached` while not known yet. */
  readonly services: { readonly reached: Reached | undefined } | undefined
  /** Who knows the Nodes of the cluster. Undefined without a source of objects. */
  readonly objects: Pick<ObjectSource, 'objects' | 'isComplete' | 'trouble'> | undefined
}

/** What this node is and knows, from which a configuration of BGP becomes one of BIRD. */
export interface BgpInputs extends FixedInputs {
  readonly lease: Lease
  readonly uplink: Uplink
  /** The leases of all nodes. */
  readonly leases: readonly Lease[]
  /** What is not known yet is waited for, as BIRD of an earlier agent announces it. Else BGP goes on without it. */
  readonly isPatient: boolean
  readonly logFile: string
}

/** The configuration of BIRD, with what is wrong, a sentence each. `made` is absent while something is not known yet. */
export interface WantedBird {
  readonly made?: BirdConf
  readonly problems: readonly string[]
}

/** Makes the configuration of BIRD for this node. Pure. Throws ValueError as `birdConf`. */
export function wantedBird(source: BgpSource, inputs: BgpInputs): WantedBird {
  const { conf, passwords } = source
  const { lease, uplink, leases, byBird } = inputs
  const { addresses, missing } = announcedAddresses(source, inputs, inputs.isPatient)
  const { labelsOf, unknown } = nodeLabels(source, inputs)
  if (addresses === undefined || labelsOf === undefined) return { problems: [] }
  const onLinkNow = [...networksOnLink(uplink, 'v4'), ...networksOnLink(uplink, 'v6')]
  const made = birdConf({
    conf,
    node: inputs.node,
    subnets: lease.subnets,
    ips: uplink.tunnel,
    seenAs: uplink.advertise,
    others: leases,
    networks: inputs.networks,
    isOnLink: onLink(uplink),
    labelsOf,
    ...(conf.programs === 'bird' && byBird && { ways: { ...byBird, onLink: onLinkNow } }),
    addresses,
    passwords,
    logFile: inputs.logFile,
  })
  return { made, problems: [...missing, ...unknown, ...made.problems] }
}

/** The addresses of Services that a node announces. Absent while Services are not known yet, and are waited for. */
export function announcedAddresses(
  { conf }: BgpSource,
  { path, services }: Pick<FixedInputs, 'path' | 'services'>,
  isPatient: boolean,
): { readonly addresses?: readonly Ip[]; readonly missing: readonly string[] } {
  const { nodeSubnet: _, ...networks } = conf.announce
  if (Object.values(networks).every((all) => all.length === 0)) return { addresses: [], missing: [] }
  if (!services) {
    const text = `${path} announces addresses of Services, which this agent does not know; want --service-proxy`
    return { addresses: [], missing: [text] }
  }
  const { reached: known } = services
  if (known === undefined) return isPatient ? { missing: [] } : { addresses: [], missing: [] }
  const wanted = [...known].filter(([ip, of]) =>
    of.some((field) => networks[field].some((network) => contains(network, ip))),
  )
  // The text for BIRD is the same whatever the order in which Services came.
  return { addresses: wanted.map(([ip]) => ip).sort(), missing: [] }
}

// `labelsOf` is absent while the labels are not known yet: the sessions stay as they are.
function nodeLabels(
  { conf }: BgpSource,
  { path, objects, isPatient }: BgpInputs,
): { readonly labelsOf?: (node: string) => Labels | undefined; readonly unknown: readonly string[] } {
  const nobody = () => undefined
  if (!usesLabels(conf)) return { labelsOf: nobody, unknown: [] }
  const text = `${path} selects nodes by labels, which this agent does not know`
  if (!objects)
    return { labelsOf: nobody, unknown: [`${text}; want the store kube, or a folder of manifests with Nodes`] }
  const { nodes } = objects.objects
  if (objects.isComplete(BGP_KINDS)) return { labelsOf: (node) => nodes.get(node)?.labels, unknown: [] }
  const trouble = objects.trouble(BGP_KINDS)
  const unknown = trouble === undefined ? [] : [`${text} yet: ${trouble}`]
  return isPatient ? { unknown } : { labelsOf: nobody, unknown }
}

/**
 * A sentence about routes to subnets of nodes that another program writes beside BIRD. Of two routes to one destination the
 * kernel takes one, and BIRD does not know of it.
 */
export function besideBird(
  path: string,
  { subnets }: Lease,
  routes: readonly { readonly dst: Cidr; readonly protocol: string }[],
): readonly string[] {
  const own = both(subnets)
  const isSubnet = ({ dst }: { readonly dst: Cidr }) =>
    own.some((one) => split(one).length === split(dst).length && one !== dst && isSix(one) === isSix(dst))
  const named = routes.filter(isSubnet).map(({ dst, protocol }) => `${dst} (proto ${protocol})`)
  if (named.length === 0) return []
  const which = `Another program writes routes to subnets of nodes beside BIRD: ${firstOf(named, NAMED)}`
  return [`${which}; stop it, or want programs agent in ${path}`]
}
