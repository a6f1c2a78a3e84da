import type { Ip } from '../../text/ip.ts'
import type { ContainerId, IfName } from '../../text/values.ts'
import type { Handler, Line } from '../handler.ts'

/**
 * An attachment of a pod that the node agent knows. Network policy applies to its addresses. Made when the agent has
 * the pod's policies in the kernel.
 */
export interface Admission {
  readonly kind: 'admission'
  readonly ns: 'host'
  /** The agent's socket. */
  readonly socket: string
  /** What to do when the agent does not answer: go on with a closed pod, or wait for the agent and then fail. */
  readonly whenAway: 'closed' | 'wait'
  readonly waitMs: number
  readonly endpoint: {
    readonly containerId: ContainerId
    readonly ifname: IfName
    readonly namespace: string
    readonly pod: string
    /** The UID of the pod, which tells it from an earlier one of its name. Absent when the runtime does not name it. */
    readonly uid?: string
    readonly addresses: readonly Ip[]
    /** The interface on the node that leads to the pod. Absent when the plugin does not know it. */
    readonly link?: IfName
  }
}

/** Pods that the node agent knows. */
export const admission: Handler<Admission> = {
  tool: 'agent',
  title: ({ endpoint }) => `admission of pod ${endpoint.namespace}/${endpoint.pod} by the agent`,
  purpose,
  key: ({ endpoint: { containerId, ifname } }) => `admission ${containerId} ${ifname}`,
  put: (one) => [{ text: `admit ${wordsOf(one)}` }],
  drop: (one) => [{ text: `release ${wordsOf(one)}` }],
  ask: () => '',
  read: (_row, want) => want,
}

function wordsOf({ endpoint: { namespace, pod, addresses } }: Admission): string {
  return [`${namespace}/${pod}`, ...addresses].join(' ')
}

function purpose({ endpoint: { addresses } }: Admission, _: Line, gone: boolean): string {
  const of = addresses.length === 1 ? 'the address' : 'the addresses'
  return gone ? `network policy forgets ${of}` : `network policy applies to ${of} before the pod starts`
}
