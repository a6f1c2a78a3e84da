import type { Run } from '../../lib/os/run.ts'
import { readJournal } from '../doctor/facts/pods.ts'
import { jsonOf } from '../doctor/facts/tools.ts'
import { journaled, podKey } from '../policy/endpoints.ts'
import type { PodSummary } from '../policy/view.ts'
import type { PodView } from '../state/details.ts'

/** A link as `ip -statistics link` has it. */
interface Row {
  readonly ifname: string
  readonly flags: readonly string[]
  readonly stats64?: { readonly rx: Counters; readonly tx: Counters }
}
interface Counters {
  readonly bytes: number
  readonly dropped: number
}

/**
 * The pods of this node that plumb's plugins have attached, sorted by name, with the counters of their links. It starts
 * one process. `policies` are the pods that network policy knows. Throws Error.
 */
export async function readPods(run: Run, policies: readonly PodSummary[] | undefined): Promise<PodView[]> {
  const rows = (await jsonOf(run, ['ip', '-json', '-statistics', 'link', 'show'])) as Row[]
  const links = new Map(rows.map((row) => [row.ifname, row]))
  const names = new Map(journaled().map((one) => [`${one.containerId} ${one.ifname}`, podKey(one)]))
  const selected = new Map(policies?.map((one) => [one.pod, one]))
  const { pods } = readJournal()
  const views = pods.map(({ container, ifname, ips, link, hostPorts }): PodView => {
    const pod = names.get(`${container} ${ifname}`)
    const policy = selected.get(pod ?? '')
    return {
      ...(pod !== undefined && { pod }),
      container,
      ifname,
      addresses: ips,
      ...(link !== undefined && { link, ...countersOf(links.get(link)) }),
      hostPorts: hostPorts.map(({ port, protocol }) => `${port}/${protocol}`),
      ...(policy && { ingress: policy.ingress, egress: policy.egress, isClosed: policy.isClosed }),
    }
  })
  const name = ({ pod, container }: PodView) => pod ?? container
  return views.sort((a, b) => (name(a) < name(b) ? -1 : 1))
}

// What the node receives from a pod's link, the pod has sent.
function countersOf(row: Row | undefined): Partial<PodView> {
  const { rx, tx } = row?.stats64 ?? {}
  const isUp = row?.flags.includes('LOWER_UP') === true
  return rx && tx ? { isUp, sent: rx.bytes, received: tx.bytes, dropped: rx.dropped + tx.dropped } : { isUp: false }
}
