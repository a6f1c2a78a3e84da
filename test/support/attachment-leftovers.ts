import type { Namespace } from './harness.ts'
import { entries } from './journal.ts'
import { type Conf, containerId, traces } from './network.ts'

/**
 * What is left of a pod's attachment to a bridge: links on the node and in the pod, forwarding entries, nft elements,
 * files, unfinished calls. `other` is a pod whose link belongs there.
 */
export async function leftOf(conf: Conf, node: Namespace, pod: Namespace, other?: Namespace): Promise<string[]> {
  const onNode = (await node.json('link', 'show', 'type', 'veth')).filter(
    ({ ifalias = '' }) => !other || !ifalias.includes(`/${containerId(other)}/`),
  )
  const inPod = (await pod.json('link')).filter(({ ifname }) => ifname !== 'lo')
  const ports = new Set(onNode.map(({ ifname }) => ifname))
  const fdb = (await node.exec(['bridge', 'fdb'])).stdout
    .split('\n')
    .filter((line) => ports.has(line.split(' ')[2] ?? ''))
  const elements = (await node.exec(['nft', 'list', 'ruleset'])).stdout
    .split('\n')
    .filter((line) => line.includes(containerId(pod)))
  return [...onNode, ...inPod]
    .map(({ ifname }) => `link ${ifname}`)
    .concat(fdb, elements, traces(pod, conf), unfinished(pod))
}

/** The entries of calls of a pod that did not come to their end. */
export function unfinished(pod: Namespace): string[] {
  return entries().flatMap(({ owner, unfinished }) =>
    unfinished && owner.containerId === containerId(pod) ? [`unfinished ${owner.ifname}`] : [],
  )
}
