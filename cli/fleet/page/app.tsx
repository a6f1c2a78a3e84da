import { useEffect, useRef, useState } from 'preact/hooks'
import { HOME, hashOf, type PageAddress, placeOf } from '../../../agent/page/address.ts'
import { Card, Command, clock, Name } from '../../../agent/page/common.tsx'
import { type Go, useNow, usePlace } from '../../../agent/page/hooks.ts'
import { useKeys } from '../../../agent/page/keys.ts'
import { roundTrip } from '../../../agent/page/peer-fields.ts'
import { Help, pressed, Views, Voice } from '../../../agent/page/shell.tsx'
import { type Column, Table } from '../../../agent/page/table.tsx'
import type { View } from '../../../agent/page/view.ts'
import { span } from '../../../agent/state/phrases.ts'
import { collator } from '../../../agent/state/reachability.ts'
import { type BadPair, badPairs, type Fleet, type FleetNode, type NodeState } from '../fleet.ts'
import { MatrixView, Zones } from './matrix.tsx'

/** How often the server is asked, in milliseconds. What did not change is not sent again. */
const ASK_MS = 5000
/** The sign and the colour of a state. */
const SIGNS: Readonly<Record<NodeState, readonly [sign: string, colour: string]>> = {
  ready: ['✓', 'reachable'],
  degraded: ['▲', 'narrow'],
  'not ready': ['✕', 'silent'],
  dead: ['?', 'unknown'],
}
const STATES: readonly NodeState[] = ['not ready', 'dead', 'degraded', 'ready']

/** The views of the page. */
const VIEWS: readonly View<Props>[] = [
  { key: 'overview', title: 'Overview', Show: Overview },
  { key: 'matrix', title: 'Matrix', Show: MatrixView },
  { key: 'nodes', title: 'Nodes', problems: 'state:bad', Show: Nodes },
  { key: 'pairs', title: 'Pairs', problems: 'state:bad', Show: Pairs },
]
const KEYS = VIEWS.map(({ key }) => key)

/** What the views need. `now` is by the browser's clock. */
interface Props {
  fleet: Fleet
  place: PageAddress
  go: Go
  now: number
}

/** The page of a fleet: all nodes, and from each to each. It asks its server again and again, and changes nothing. */
export function App() {
  const [place, go] = usePlace(KEYS)
  const { fleet, lost } = useFleet(place.isPaused)
  const now = useNow()
  const [said, say] = useState('')
  const help = useRef<HTMLDialogElement>(null)
  const here = () => placeOf(location.hash, KEYS)
  useKeys((key) => pressed(key, { go, here, views: VIEWS, say, help: help.current }))
  const bad = fleet ? fleet.nodes.length - fleet.counts.ready : 0
  const title = [lost === undefined ? bad > 0 && `${bad} not ready` : 'connection lost', 'plumb fleet']
    .filter(Boolean)
    .join(' · ')
  useEffect(() => {
    document.title = title
  }, [title])
  if (!fleet)
    return (
      <main>
        <h1 class="empty">{lost === undefined ? 'Asking the agents…' : 'plumb page does not answer; asking again.'}</h1>
      </main>
    )
  const tone = fleet.counts['not ready'] + fleet.counts.dead > 0 ? 'bad' : bad > 0 ? 'warn' : 'good'
  const props = { fleet, place, go, now }
  const view = VIEWS.find(({ key }) => key === place.view)
  return (
    <>
      <header>
        <img src="icon.svg" alt="" width="32" height="32" />
        <div class="who">
          <h1>Fleet</h1>
          <p>
            nodes: {fleet.nodes.length}, versions: {Object.keys(fleet.versions).length}
          </p>
        </div>
        <p class={`link ${lost !== undefined ? 'bad' : place.isPaused ? 'paused' : 'good'}`}>
          {lost !== undefined ? 'connection lost' : `${place.isPaused ? 'paused, ' : ''}as of ${clock(fleet.at)}`}
        </p>
        <button type="button" aria-pressed={place.isPaused} onClick={() => go({ isPaused: !place.isPaused })}>
          {place.isPaused ? 'Go on' : 'Pause'}
        </button>
      </header>
      <Views all={VIEWS} here={place.view} help={help} />
      {lost !== undefined && (
        <p class="lost">
          <b>Connection lost</b> {span(now - lost)} ago. What you see is as of {clock(fleet.at)}; asking again…
        </p>
      )}
      <main class={`fleet ${place.view}${lost === undefined ? '' : ' old'}`}>
        <p class={`sentence ${tone}`}>
          <Name>{fleet.sentence}</Name>
        </p>
        {view && <view.Show {...props} />}
      </main>
      <footer>
        <a href="fleet">the fleet as JSON</a>
      </footer>
      <Help dialog={help} views={VIEWS.length} />
      <Voice text={lost === undefined ? said || fleet.sentence : 'The connection to plumb page is lost'} />
    </>
  )
}

function Overview({ fleet }: Props) {
  const { findings, dead, lost, counts, versions, zones } = fleet
  const link = (place: Partial<PageAddress>) => hashOf({ ...HOME, ...place })
  return (
    <>
      {findings.length + dead.length + lost.length > 0 && (
        <section class="card problems bad" aria-label="What is wrong">
          <ul>
            {findings.map(({ code, severity, what, commands, nodes }) => (
              <li key={code}>
                <p>
                  <b class={severity}>{severity === 'error' ? '✕' : '▲'} </b>
                  <Name>{what}</Name> <small>{code}</small> <Where nodes={nodes} />
                </p>
                {commands.map((command) => (
                  <Command key={command}>{command}</Command>
                ))}
              </li>
            ))}
            {lost.map(({ name, text }) => (
              <li key={name}>
                <p>
                  <Name>{text}</Name>
                </p>
              </li>
            ))}
            {dead.map(({ what, nodes }) => (
              <li key={what}>
                <p>
                  <Name>{what}</Name>: <Where nodes={nodes} />
                </p>
              </li>
            ))}
          </ul>
        </section>
      )}
      <Card id="network" title="Nodes" aside={<a href={link({ view: 'nodes' })}>All nodes</a>}>
        <div class="bar" aria-hidden="true">
          {STATES.toReversed().map(
            (state) =>
              counts[state] > 0 && <i key={state} class={SIGNS[state][1]} style={{ flexGrow: counts[state] }} />,
          )}
        </div>
        <ul class="counts">
          {STATES.toReversed().map((state) => (
            <li key={state}>
              <a href={link({ view: 'nodes', q: `state:${state.replace(' ', '-')}` })}>
                <i class={`sign ${SIGNS[state][1]}`} aria-hidden="true">
                  {SIGNS[state][0]}
                </i>
                <b>{counts[state]}</b> {state}
              </a>
            </li>
          ))}
        </ul>
        <p class="versions">
          {Object.entries(versions).map(([version, count]) => (
            <span key={version}>
              <a href={link({ view: 'nodes', q: `version:${version}` })}>
                plumb <Name>{version}</Name>
              </a>{' '}
              on {count}
            </span>
          ))}
        </p>
        <Worst fleet={fleet} />
      </Card>
      {zones.length > 0 && (
        <Card id="news" title="From zone to zone" aside={<a href={link({ view: 'matrix' })}>From node to node</a>}>
          <Zones zones={zones} />
        </Card>
      )}
    </>
  )
}

function Where({ nodes }: { nodes: readonly string[] }) {
  const more = nodes.length - 3
  return (
    <small>
      on <Name>{nodes.slice(0, 3).join(', ')}</Name>
      {more > 0 && ` and ${more} more`}
    </small>
  )
}

function Worst({ fleet }: Pick<Props, 'fleet'>) {
  // A node or zone that nobody reaches is one sentence above.
  const named = new Set(fleet.lost.flatMap(({ nodes }) => nodes))
  const pairs = badPairs(fleet)
    .filter(({ from, name }) => !(named.has(from) || named.has(name)))
    .slice(0, 5)
  if (pairs.length === 0) return null
  return (
    <>
      <h3>The worst pairs</h3>
      <ul class="worst">
        {pairs.map(({ from, name, state, lost, sent }) => (
          <li key={`${from} ${name}`} class="bad">
            <Name>{`${from} → ${name}`}</Name>{' '}
            <span>{sent === undefined ? state : `${state}, ${lost} of ${sent} probes lost`}</span>
          </li>
        ))}
      </ul>
    </>
  )
}

const NODE_COLUMNS: readonly Column<FleetNode>[] = [
  { key: 'node', head: 'Node', cell: ({ name }) => <Name>{name}</Name> },
  {
    key: 'state',
    head: 'State',
    cell: ({ state, cause, deadSince }) => (
      <>
        <i class={`sign ${SIGNS[state][1]}`} aria-hidden="true">
          {SIGNS[state][0]}
        </i>
        {state}
        {deadSince !== undefined && ` since ${clock(deadSince)}`}
        {cause !== undefined && (
          <>
            : <Name>{cause}</Name>
          </>
        )}
      </>
    ),
  },
  { key: 'peers', head: 'Peers', isNumber: true, cell: (one) => peersOf(one) },
  { key: 'zone', head: 'Zone', cell: ({ zone }) => <Name>{zone ?? ''}</Name> },
  { key: 'version', head: 'Version', cell: ({ version }) => <Name>{version ?? ''}</Name> },
  { key: 'repairs', head: 'Repairs in an hour', isNumber: true, cell: ({ repairs }) => repairs ?? '' },
  { key: 'pods', head: 'Pods', isNumber: true, cell: ({ pods }) => pods?.all ?? '' },
  { key: 'drops', head: 'Drops a minute', isNumber: true, cell: ({ drops }) => drops ?? '' },
]

function Nodes({ fleet, place, go }: Props) {
  return (
    <Card id="nodes" title="Nodes">
      <Table
        what={fleet.nodes.length === 1 ? 'node' : 'nodes'}
        all={fleet.nodes}
        columns={NODE_COLUMNS}
        keyOf={nameOf}
        isBad={isBad}
        fields={NODE_FIELDS}
        textOf={nodeText}
        example="state:bad zone:b version:0.1.0"
        orderOf={nodeOrder}
        sortable={['node', 'repairs', 'drops']}
        place={place}
        go={go}
        empty={fleet.note ?? 'No agent is known yet'}
      />
    </Card>
  )
}

const NODE_FIELDS = {
  node: { kind: 'text', of: nameOf },
  state: { kind: 'exact', of: (one: FleetNode) => [one.state.replace(' ', '-'), ...(isBad(one) ? ['bad'] : [])] },
  zone: { kind: 'exact', of: ({ zone }: FleetNode) => zone },
  version: { kind: 'exact', of: ({ version }: FleetNode) => version },
  text: { kind: 'text', of: nodeText },
} as const

function nameOf({ name }: FleetNode): string {
  return name
}

function isBad({ state }: FleetNode): boolean {
  return state !== 'ready'
}

function nodeText({ name, zone, version, state, cause, backend }: FleetNode): string {
  return [name, zone, version, state, cause, backend].join(' ').toLowerCase()
}

function peersOf({ peers }: FleetNode): string {
  if (!peers) return ''
  const all = Object.values(peers).reduce((sum, count) => sum + (count ?? 0), 0)
  return `${peers.reachable ?? 0} of ${all}`
}

function nodeOrder(sort: string): (a: FleetNode, b: FleetNode) => number {
  const byName = (a: FleetNode, b: FleetNode) => collator.compare(a.name, b.name)
  const isDown = sort.startsWith('-')
  const key = sort.replace(/^-/, '')
  if (key === 'node') return isDown ? (a, b) => byName(b, a) : byName
  if (key === 'repairs' || key === 'drops')
    return (a, b) => (isDown ? (b[key] ?? -1) - (a[key] ?? -1) : (a[key] ?? -1) - (b[key] ?? -1)) || byName(a, b)
  return (a, b) => STATES.indexOf(a.state) - STATES.indexOf(b.state) || byName(a, b)
}

const PAIR_COLUMNS: readonly Column<BadPair>[] = [
  { key: 'from', head: 'From', cell: ({ from }) => <Name>{from}</Name> },
  { key: 'to', head: 'To', cell: ({ name }) => <Name>{name}</Name> },
  { key: 'state', head: 'State', cell: ({ state }) => state },
  {
    key: 'loss',
    head: 'Loss',
    isNumber: true,
    cell: ({ sent, lost = 0 }) => (sent ? `${Math.round((100 * lost) / sent)} %` : ''),
  },
  { key: 'rtt', head: 'Round trip', isNumber: true, cell: ({ ms }) => roundTrip(ms) },
  { key: 'since', head: 'Since', cell: ({ since }) => (since === undefined ? '' : clock(since)) },
]

function Pairs({ fleet, place, go }: Props) {
  const all = badPairs(fleet)
  return (
    <Card id="pairs" title="Pairs that lose packets" aside={<p>each node names its 20 worst</p>}>
      <Table
        what={all.length === 1 ? 'pair' : 'pairs'}
        all={all}
        columns={PAIR_COLUMNS}
        keyOf={({ from, name }) => `${from} ${name}`}
        isBad={({ state }) => state !== 'reachable'}
        fields={PAIR_FIELDS}
        textOf={pairText}
        example="node:node-4 state:silent"
        orderOf={(sort) => (sort === '-from' ? (a, b) => collator.compare(b.from, a.from) : () => 0)}
        sortable={[]}
        place={place}
        go={go}
        empty="No pair loses packets"
      />
    </Card>
  )
}

const PAIR_FIELDS = {
  node: { kind: 'text', of: ({ from, name }: BadPair) => [from, name] },
  state: {
    kind: 'exact',
    of: ({ state }: BadPair) => (state === 'reachable' || state === 'unknown' ? state : [state, 'bad']),
  },
  zone: { kind: 'exact', of: ({ zone }: BadPair) => zone },
  text: { kind: 'text', of: pairText },
} as const

function pairText({ from, name, state, zone }: BadPair): string {
  return [from, name, state, zone].join(' ').toLowerCase()
}

function useFleet(isPaused: boolean): { readonly fleet: Fleet | undefined; readonly lost: number | undefined } {
  const [state, set] = useState<{ fleet?: Fleet; lost?: number }>({})
  useEffect(() => {
    if (isPaused && state.fleet) return
    const end = new AbortController()
    let timer: ReturnType<typeof setTimeout>
    const ask = async () => {
      try {
        const answer = await fetch('fleet', { signal: end.signal })
        if (!answer.ok) throw new Error(answer.statusText)
        const fleet = (await answer.json()) as Fleet
        set((before) => (before.lost === undefined && before.fleet?.at === fleet.at ? before : { fleet }))
      } catch {
        if (!end.signal.aborted) set(({ lost = Date.now(), ...before }) => ({ ...before, lost }))
      }
      if (!end.signal.aborted) timer = setTimeout(ask, ASK_MS)
    }
    void ask()
    return () => {
      clearTimeout(timer)
      end.abort()
    }
  }, [isPaused])
  return { fleet: state.fleet, lost: state.lost }
}
