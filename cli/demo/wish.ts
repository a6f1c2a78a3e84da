import { shown, ValueError } from '../../lib/text/errors.ts'
import { choicesOf, describeOptions, type Grammar, type OptionName, readOptions } from '../options.ts'

/** The kind of store that holds the leases of the nodes. */
export type StoreName = 'file' | 'etcd'
/** One story of the demo. Each story has private namespaces. `store` is the store of the nodes. */
export interface Story {
  readonly name: 'pods' | 'nodes' | 'policy' | 'services' | 'bgp' | 'kubernetes'
  readonly store?: StoreName
}
/** The request of a command line: the stories in order, and whether it named the store. */
export interface DemoRequest {
  readonly stories: readonly Story[]
  readonly isStoreNamed: boolean
}

const OPTIONS: readonly OptionName[] = ['store', 'help']
const STORIES = ['pods', 'nodes', 'policy', 'services', 'bgp', 'kubernetes'] as const
const STORES: readonly StoreName[] = ['file', 'etcd']

/** What may follow `plumb demo`. */
export const grammar: Grammar = { options: choicesOf(OPTIONS), words: [STORIES.join('|')] }

/** Reads the command line of `plumb demo`. Returns `help` when it asks for help. Throws ValueError. */
export function wishOf(argv: readonly string[]): DemoRequest | 'help' {
  const { values, words } = readOptions(argv, OPTIONS, 'plumb demo')
  if (values.help) return 'help'
  const [name, more] = words
  if ((name !== undefined && !STORIES.some((one) => one === name)) || more !== undefined)
    throw new ValueError(
      `plumb demo takes no ${shown(more ?? name)}: want ${STORIES.join(', ')}; see plumb demo --help`,
    )
  const { store } = values
  if (store !== undefined && !STORES.some((one) => one === store))
    throw new ValueError(`Cannot read --store ${shown(store)}: want ${STORES.join(' or ')}; see plumb demo --help`)
  if ((name === 'pods' || name === 'policy') && store !== undefined)
    throw new ValueError(
      `plumb demo ${name} takes no --store: it has no leases to choose a store for; see plumb demo --help`,
    )
  if (name === 'services' && store !== undefined)
    throw new ValueError('plumb demo services takes no --store: it has one node; see plumb demo --help')
  if (name === 'bgp' && store !== undefined)
    throw new ValueError('plumb demo bgp takes no --store: the leases are in a folder; see plumb demo --help')
  if (name === 'kubernetes' && store !== undefined)
    throw new ValueError('plumb demo kubernetes takes no --store: the cluster keeps the leases; see plumb demo --help')
  return { stories: storiesOf(name, store), isStoreNamed: store !== undefined }
}

function storiesOf(name: string | undefined, store: string | undefined): readonly Story[] {
  const nodes = STORES.filter((one) => one === (store ?? one)).map((one): Story => ({ name: 'nodes', store: one }))
  const alone = STORIES.find((one) => one === name)
  if (alone === 'nodes' || (alone === undefined && store)) return nodes
  return alone === undefined ? [{ name: 'pods' }, ...nodes] : [{ name: alone }]
}

/** The help text of `plumb demo`. */
export function help(): string {
  return `usage: plumb demo [pods|nodes|policy|services|bgp|kubernetes] [options]: pods and nodes made, tried and removed, in seconds

  pods   three pods on a node: plumb cni, host ports, packets, what CHECK finds, what is left
  nodes  three nodes, each with a plumb agent and a pod: vxlan, a tunnel that somebody deletes, host-gw.
         The leases are in a folder, then in an etcd that the demo starts, where one is installed

  policy  three pods, an agent and a folder of manifests: default deny, one allow, who reaches whom

  services  one address for three pods: the spread, a pod that goes, a node port, affinity.
            The Services are manifests in a folder, without Kubernetes

  bgp  three nodes and a router: pods and a Service's address reached from outside, a node that is
       killed, and the traffic after it. The BIRD of the package bird2 runs on all four

  kubernetes  a Kubernetes cluster of three nodes, with its own kubelets and containerd, on this
              machine: pods in both families, a Service, host ports. npm run test:kubernetes
              builds Kubernetes first

Pods and nodes, unless one is named. --store alone is for nodes.

${describeOptions(OPTIONS)}

Runs as root in private namespaces, and changes nothing outside of them. Every line of it was
checked when it says ok.

exit status: 0 every step was as it says, 1 one was not (it is named), 2 the command line is wrong`
}
