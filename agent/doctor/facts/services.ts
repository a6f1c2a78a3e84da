import { connect } from 'node:net'
import { question } from '../../../lib/os/ask.ts'
import type { Decision, PodDetail, PodSummary } from '../../policy/view.ts'
import type { ServiceView } from '../../services/view.ts'
import { status } from './agent.ts'
import type { Fact } from './facts.ts'

/** A port of a pod of this node to which a Service leads, and at which nobody listens. */
export interface Unheard {
  /** `x/web` */
  readonly service: string
  /** `10.1.0.2:8080` */
  readonly address: string
}
/** A pod of this node whose policies let it send somewhere, and not to the name servers of the cluster. */
export interface Nameless {
  /** `x/a` */
  readonly pod: string
  readonly policies: readonly string[]
  /** The one of them that lets the pod send somewhere: `x/deny`, or `ClusterNetworkPolicy allow-web (Admin)`. */
  readonly accepting: string
}

/** The most ports and pods that are asked, and how long, in milliseconds. */
const [MOST_PORTS, MOST_PODS, WAIT_MS, QUIET_MS] = [64, 100, 300, 1000]
const DNS_PORT = 53

/** The Services that the agent serves. Undefined when it serves none, and when no agent answers. */
export const services: Fact<readonly ServiceView[] | undefined> = {
  async read({ of, places }) {
    return (await of(status))?.services ? ((await places.services()) ?? undefined) : undefined
  },
  inAgent: { missing: 'its own Services' },
}

/** Their endpoints on this node at which nobody listens. */
export const unheard: Fact<readonly Unheard[]> = {
  read: async ({ of }) => readUnheard(await of(services)),
  inAgent: { missing: 'the programs of pods' },
}

/** The pods of this node whose policies forget the name servers. */
export const nameless: Fact<readonly Nameless[]> = {
  async read({ of, places }) {
    return (await of(status))?.policy ? readNameless(places.policySocket, await of(services)) : []
  },
  inAgent: { missing: 'its own policies' },
}

/** The Service of the cluster's name servers, as kubeadm, k3s and kind name it. Undefined when there is none. */
export function dnsOf(services: readonly ServiceView[]): ServiceView | undefined {
  return services.find(({ namespace, name }) => namespace === 'kube-system' && /^(kube-dns|coredns)$/.test(name))
}

/** Connects to the TCP endpoints of this node, and gives those that refuse. Takes at most 0.3 s. */
export async function readUnheard(services: readonly ServiceView[] | undefined): Promise<Unheard[]> {
  const all = (services ?? []).flatMap(({ namespace, name, ports }) =>
    ports.flatMap(({ addresses, endpoints }) =>
      addresses.some((one) => one.endsWith('/TCP'))
        ? endpoints.flatMap(({ address, isLocal, leftOut }) =>
            isLocal && leftOut === undefined ? [{ service: `${namespace}/${name}`, address }] : [],
          )
        : [],
    ),
  )
  const asked = all.slice(0, MOST_PORTS)
  const refused = await Promise.all(asked.map(({ address }) => isRefused(address)))
  return asked.filter((_, i) => refused[i])
}

function isRefused(address: string): Promise<boolean> {
  const [, host = '', port] = /^\[?(.*?)\]?:(\d+)$/.exec(address) ?? []
  const { promise, resolve } = Promise.withResolvers<boolean>()
  const socket = connect({ host, port: Number(port) })
  const timer = setTimeout(() => resolve(false), WAIT_MS)
  socket.on('connect', () => resolve(false))
  socket.on('error', ({ code }: NodeJS.ErrnoException) => resolve(code === 'ECONNREFUSED'))
  return promise.finally(() => {
    clearTimeout(timer)
    socket.destroy()
  })
}

/**
 * Asks the agent on its policy socket which pods of this node may send somewhere, and not to the name servers. Throws
 * CniError when it does not answer.
 */
export function readNameless(socket: string, services: readonly ServiceView[] | undefined): Nameless[] {
  const [server] = dnsOf(services ?? [])?.ports.flatMap(({ addresses }) => addresses) ?? []
  const [, ip] = /^\[?(.*?)\]?:\d+\/\w+$/.exec(server ?? '') ?? []
  if (ip === undefined) return []
  const ask = <Reply extends object>(asked: object): Reply =>
    question<Reply>({ socket, name: 'the agent for network policy', advice: '' }, asked, QUIET_MS)()
  const { pods } = ask<{ readonly pods: readonly PodSummary[] }>({ command: 'list' })
  const isolated = pods.filter(({ egress, isClosed }) => egress.length > 0 && !isClosed).slice(0, MOST_PODS)
  return isolated.flatMap(({ pod, egress }): Nameless[] => {
    const { rules } = ask<PodDetail>({ command: 'show', pod }).egress
    const accepting = rules.find(({ action }) => action === 'Accept')
    if (!accepting) return []
    const { verdict, isAudit, isRefusedByService } = ask<Decision>({
      command: 'decide',
      from: pod,
      to: ip,
      protocol: 'UDP',
      port: DNS_PORT,
    })
    return verdict.passes || isAudit || isRefusedByService
      ? []
      : [{ pod, policies: egress, accepting: accepting.rule.replace(/ egress\[.*/, '') }]
  })
}
