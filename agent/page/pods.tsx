import { useEffect, useMemo, useState } from 'preact/hooks'
import type { PodDetail, SideView } from '../policy/view.ts'
import type { PodView } from '../state/details.ts'
import { collator } from '../state/reachability.ts'
import { Card, Codes, Command, Heads, Name, When } from './common.tsx'
import type { Fields } from './filter.ts'
import { useList } from './hooks.ts'
import { type Column, Table } from './table.tsx'
import type { ViewProps } from './view.ts'

/** How often pods are asked for while somebody looks, in milliseconds. */
const ASK_MS = 1000

/** A pod with its traffic, in bytes a second. */
interface Pod extends PodView {
  readonly in?: number
  readonly out?: number
}

const COLUMNS: readonly Column<Pod>[] = [
  { key: 'pod', head: 'Pod', cell: (one) => <Name>{nameOf(one)}</Name> },
  { key: 'addresses', head: 'Addresses', cell: ({ addresses }) => <Codes of={addresses} /> },
  { key: 'link', head: 'Link', cell: ({ link, isUp }) => (link === undefined ? '' : `${link}${isUp ? '' : ', down'}`) },
  { key: 'in', head: 'In', isNumber: true, cell: (one) => rate(one.in) },
  { key: 'out', head: 'Out', isNumber: true, cell: (one) => rate(one.out) },
  { key: 'drops', head: 'Drops', isNumber: true, cell: ({ dropped }) => dropped ?? '' },
  { key: 'ingress', head: 'Ingress', cell: (one) => policies(one, one.ingress) },
  { key: 'egress', head: 'Egress', cell: (one) => policies(one, one.egress) },
]
const PLAIN = COLUMNS.filter(({ key }) => key !== 'ingress' && key !== 'egress')
const FIELDS: Fields<Pod> = {
  pod: { kind: 'text', of: nameOf },
  ns: { kind: 'exact', of: ({ pod }) => pod?.replace(/\/.*/, '') },
  ip: { kind: 'text', of: ({ addresses }) => addresses },
  policy: { kind: 'text', of: ({ ingress = [], egress = [] }) => [...ingress, ...egress] },
  state: { kind: 'exact', of: (one) => (isBad(one) ? [one.isClosed ? 'closed' : 'down', 'bad'] : 'good') },
  drops: { kind: 'number', units: { '': 1 }, of: ({ dropped }) => dropped },
  in: { kind: 'number', units: { '': 1, k: 1e3, m: 1e6 }, of: (one) => one.in },
  out: { kind: 'number', units: { '': 1, k: 1e3, m: 1e6 }, of: (one) => one.out },
  text: { kind: 'text', of: textOf },
}

/** The pods of this node, with their traffic. Or one of them. */
export function Pods({ known, place, go, now }: ViewProps) {
  const [asked, ask] = useState(0)
  const answer = useList<readonly PodView[] | null>('pods', asked)
  const all = useTraffic(answer ?? undefined)
  useEffect(() => {
    if (place.isPaused) return
    const timer = setInterval(() => ask((count) => count + 1), ASK_MS)
    return () => clearInterval(timer)
  }, [place.isPaused])
  const hasPolicy = known.status.policy !== undefined
  const { item } = place
  if (item !== undefined)
    return <PodPage pod={all.find((one) => nameOf(one) === item)} name={item} {...{ known, go, now, place }} />
  return (
    <Card id="pods" title="Pods of this node">
      <Table
        what={all.length === 1 ? 'pod' : 'pods'}
        all={all}
        columns={hasPolicy ? COLUMNS : PLAIN}
        keyOf={keyOf}
        isBad={isBad}
        fields={FIELDS}
        textOf={textOf}
        example="ns:shop state:bad in>1m"
        orderOf={orderOf}
        sortable={['pod', 'in', 'out', 'drops']}
        place={place}
        go={go}
        item={nameOf}
        empty={answer === undefined ? 'Asking the agent…' : 'There are no pods'}
      />
    </Card>
  )
}

function PodPage({ pod, name, known, now, go }: ViewProps & { pod: Pod | undefined; name: string }) {
  const steps = known.status.policy?.steps.count
  const rules = useList<PodDetail | null>(`pod?name=${encodeURIComponent(name)}`, steps)
  const drops = known.happenings
    .filter(({ kind, text }) => kind === 'drop' && text.includes(name))
    .slice(-20)
    .toReversed()
  const back = (
    <button type="button" onClick={() => go({ view: 'pods', item: undefined }, true)}>
      All pods
    </button>
  )
  return (
    <>
      <Card id="pod" title={name} aside={back}>
        {pod ? (
          <dl class="facts">
            {[
              ['Addresses', pod.addresses.join(', ')],
              ['Link', pod.link === undefined ? 'none' : `${pod.link}, ${pod.isUp ? 'up' : 'down'}`],
              ['Interface', pod.ifname],
              ['In, out', `${rate(pod.in) || '–'}, ${rate(pod.out) || '–'}`],
              ['Host ports', pod.hostPorts.join(', ') || 'none'],
              ['Container', pod.container],
            ].map(([head, value]) => (
              <div key={head}>
                <dt>{head}</dt>
                <dd>{value}</dd>
              </div>
            ))}
          </dl>
        ) : (
          <p class="empty">This node has no such pod now</p>
        )}
      </Card>
      {rules && (
        <>
          <Side title="Who may reach it" id="ingress" side={rules.ingress} />
          <Side title="Whom it may reach" id="egress" side={rules.egress} />
        </>
      )}
      <Card id="ask" title="Ask further">
        <ul class="commands">
          {[`plumb trace ${name} NAMESPACE/POD 80/tcp`, `plumb policy test ${name} NAMESPACE/POD 80`].map((command) => (
            <li key={command}>
              <Command>{command}</Command>
            </li>
          ))}
        </ul>
      </Card>
      {drops.length > 0 && (
        <Card id="drops" title="Refused packets, sampled">
          <ol class="log">
            {drops.map(({ n, at, text, count }) => (
              <li key={n}>
                <When at={at} now={now} /> <Name>{text}</Name>
                {count !== undefined && ` (${count} times)`}
              </li>
            ))}
          </ol>
        </Card>
      )}
    </>
  )
}

function Side({ title, id, side: { isolatedBy, rules } }: { title: string; id: string; side: SideView }) {
  return (
    <Card id={id} title={title} aside={<p>{isolatedBy.length > 0 && `isolated by ${isolatedBy.join(', ')}`}</p>}>
      {rules.length === 0 ? (
        <p class="empty">{isolatedBy.length > 0 ? 'Nobody: no rule lets anyone' : 'Everybody: no policy selects it'}</p>
      ) : (
        <table>
          <Heads of={['Rule', 'Decides', 'Peers', 'Ports', 'Pods now']} />
          <tbody>
            {rules.map(({ rule, action, peers, ports, pods }) => (
              <tr key={rule}>
                <th scope="row">{rule}</th>
                <td data-name="Decides">{action}</td>
                <td data-name="Peers">{peers.join('; ')}</td>
                <td data-name="Ports">{ports.join(', ')}</td>
                <td data-name="Pods now">{pods.join(', ') || 'none'}</td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
    </Card>
  )
}

// Two answers give a rate. A smaller count is another pod's, with the same link.
function useTraffic(pods: readonly PodView[] | undefined): readonly Pod[] {
  const [state, set] = useState<{ at: number; pods: readonly PodView[]; rated: readonly Pod[] }>()
  useEffect(() => {
    if (!pods) return
    set((before) => {
      const at = Date.now()
      const seconds = before ? (at - before.at) / 1000 : 0
      const last = new Map(before?.pods.map((one) => [keyOf(one), one]))
      const per = (now: number | undefined, then: number | undefined) =>
        now === undefined || then === undefined || now < then || seconds <= 0 ? undefined : (now - then) / seconds
      const rated = pods.map((one): Pod => {
        const old = last.get(keyOf(one))
        const [received, sent] = [per(one.received, old?.received), per(one.sent, old?.sent)]
        return { ...one, ...(received !== undefined && { in: received }), ...(sent !== undefined && { out: sent }) }
      })
      return { at, pods, rated }
    })
  }, [pods])
  return useMemo(() => state?.rated ?? [], [state])
}

function nameOf({ pod, container, ifname }: PodView): string {
  return pod ?? `${container.slice(0, 12)} ${ifname}`
}

function keyOf({ container, ifname }: PodView): string {
  return `${container} ${ifname}`
}

function isBad({ isClosed, isUp, link }: PodView): boolean {
  return isClosed === true || (link !== undefined && isUp === false)
}

function policies({ isClosed }: Pod, names: readonly string[] | undefined): string {
  if (isClosed) return 'closed'
  return names === undefined ? '' : names.join(', ') || 'open'
}

function rate(bytes: number | undefined): string {
  if (bytes === undefined) return ''
  const bits = bytes * 8
  const [size, unit] =
    bits < 1e3 ? [1, 'bit/s'] : bits < 1e6 ? [1e3, 'kbit/s'] : bits < 1e9 ? [1e6, 'Mbit/s'] : [1e9, 'Gbit/s']
  return `${Number((bits / size).toPrecision(2))} ${unit}`
}

function textOf(one: Pod): string {
  const { container, addresses, link, ingress = [], egress = [] } = one
  return [nameOf(one), container, ...addresses, link, ...ingress, ...egress].join(' ').toLowerCase()
}

function orderOf(sort: string): (a: Pod, b: Pod) => number {
  const byName = (a: Pod, b: Pod) => collator.compare(nameOf(a), nameOf(b))
  const key = sort.replace(/^-/, '')
  const of = {
    in: (one: Pod) => one.in ?? -1,
    out: (one: Pod) => one.out ?? -1,
    drops: (one: Pod) => one.dropped ?? -1,
  }[key]
  const order = of ? (a: Pod, b: Pod) => of(a) - of(b) : byName
  if (sort === '') return (a, b) => Number(isBad(b)) - Number(isBad(a)) || byName(a, b)
  return sort.startsWith('-') ? (a, b) => order(b, a) || byName(a, b) : (a, b) => order(a, b) || byName(a, b)
}
