import type { ComponentChildren } from 'preact'
import { useMemo } from 'preact/hooks'
import type { Base } from '../state/messages.ts'
import type { NodePast } from '../state/past.ts'
import { durationWords, sentenceOf, span, storeWords } from '../state/phrases.ts'
import { drift, reach, total } from '../state/reachability.ts'
import { isBad, type PeerState, peerOf, type Row, rowName } from '../state/rows.ts'
import { HOME, hashOf } from './address.ts'
import { Both, Card, Command, Name } from './common.tsx'
import { Entry } from './events.tsx'
import { useList } from './hooks.ts'
import { named, orderOf, roundTrip, SIGNS, STATES } from './peer-fields.ts'
import { Spark, States } from './spark.tsx'
import type { ViewProps } from './view.ts'

/** The peers that stand in the overview, and the entries of the log. */
const [WORST, NEWS] = [5, 6]

/** What an operator sees first: what is wrong, what there is, and how it was. */
export function Overview({ known, now }: ViewProps) {
  const { status, peers, happenings } = known
  const minute = Math.floor(now / 60_000)
  const past = useList<NodePast | null>('past', minute)
  const rows = useMemo(() => named(peers.values()).sort(orderOf('')), [peers])
  return (
    <>
      <Problems status={status} />
      <Card id="network" title="Peers" aside={<a href={hashOf({ ...HOME, view: 'peers' })}>All peers</a>}>
        <Counts rows={rows} />
        <Worst rows={rows} />
      </Card>
      <Facts status={status} now={now} />
      <Card id="hour" title="The last hour" aside={past && <p>{pastWords(past, now)}</p>}>
        <States states={past?.states.slice(-60) ?? '-'.repeat(60)} />
        <div class="sparks">
          <Spark values={hour(past, 'lost')} least={4} height={44} label="Lost peers" shown={String} />
          <Spark values={hour(past, 'drift')} least={4} height={44} label="Objects not as wanted" shown={String} />
          <Spark values={hour(past, 'repairs')} least={4} height={44} label="Repairs a minute" shown={String} />
          {status.policy && (
            <Spark
              values={hour(past, 'refused')}
              least={4}
              height={44}
              label="Refused packets a minute, sampled"
              shown={String}
            />
          )}
        </div>
      </Card>
      <Card id="news" title="What has happened" aside={<a href={hashOf({ ...HOME, view: 'events' })}>The whole log</a>}>
        <ol class="log">
          {happenings
            .slice(-NEWS)
            .toReversed()
            .map((one) => (
              <Entry key={one.n} one={one} now={now} />
            ))}
        </ol>
      </Card>
    </>
  )
}

// Findings stand first with their commands: they are causes. The rest follows from them, or has no known cause.
function Problems({ status: { reasons, degraded, findings, state } }: { status: Base }) {
  const told = new Set(findings.map(sentenceOf))
  const others = [...reasons, ...degraded].filter((text) => !told.has(text))
  if (findings.length === 0 && others.length === 0) return null
  return (
    <section class={`card problems ${state === 'not ready' ? 'bad' : 'warn'}`} aria-label="What is wrong">
      <ul>
        {findings.map((one) => (
          <li key={`${one.code} ${one.text}`}>
            <p>
              <b class={one.severity}>{one.severity === 'error' ? '✕' : '▲'} </b>
              <Name>{one.text}</Name> <small>{one.code}</small>
            </p>
            {one.commands.map((command) => (
              <Command key={command}>{command}</Command>
            ))}
          </li>
        ))}
        {others.map((text) => (
          <li key={text}>
            <p>
              <Name>{text}</Name>
            </p>
          </li>
        ))}
      </ul>
    </section>
  )
}

function Counts({ rows }: { rows: readonly Row[] }) {
  const counts = STATES.toReversed().map((state) => [state, rows.filter((row) => row.state === state).length] as const)
  const there = counts.filter(([, count]) => count > 0)
  if (rows.length === 0) return <p class="empty">No other node has a subnet yet</p>
  return (
    <>
      <div class="bar" aria-hidden="true">
        {there.map(([state, count]) => (
          <i key={state} class={state} style={{ flexGrow: count }} />
        ))}
      </div>
      <ul class="counts">
        {there.map(([state, count]) => (
          <li key={state}>
            <a href={hashOf({ ...HOME, view: 'peers', q: `state:${state}` })}>
              <i class={`sign ${state}`} aria-hidden="true">
                {SIGNS[state]}
              </i>
              <b>{count}</b> {WORDS[state]}
            </a>
          </li>
        ))}
      </ul>
    </>
  )
}

const WORDS: Readonly<Record<PeerState, string>> = {
  reachable: 'reachable',
  narrow: 'lose packets of full size',
  silent: 'do not answer',
  away: 'away, without news in Kubernetes',
  unreachable: 'cannot be reached',
  unknown: 'not asked',
}

// Without a lost peer, the slowest are of interest.
function Worst({ rows }: { rows: readonly Row[] }) {
  const bad = rows.filter(isBad)
  const slow = rows.filter(({ ms }) => ms !== undefined).sort((a, b) => (b.ms ?? 0) - (a.ms ?? 0))
  const shown = (bad.length > 0 ? bad : slow).slice(0, WORST)
  if (shown.length === 0) return null
  return (
    <>
      <h3>{bad.length > 0 ? 'The worst' : 'The slowest'}</h3>
      <ul class="worst">
        {shown.map((row) => (
          <li key={row.n} class={isBad(row) ? 'bad' : ''}>
            <a href={hashOf({ ...HOME, view: 'peers', item: rowName(row), selected: rowName(row) })}>
              <Name>{rowName(row)}</Name>
            </a>{' '}
            <span>{isBad(row) ? reach(peerOf(row)) : roundTrip(row.ms)}</span>
          </li>
        ))}
      </ul>
    </>
  )
}

function Facts({ status, now }: { status: Base; now: number }) {
  const {
    subnets,
    network,
    backend,
    mtu,
    uplink,
    store,
    kinds,
    steps,
    started,
    unreadable,
    policy,
    services,
    bgp,
    fastPath,
  } = status
  const { wanted, repaired } = total(kinds)
  const off = drift(kinds)
  return (
    <section class="card own" aria-labelledby="node">
      <h2 id="node">This node</h2>
      <dl class="facts">
        <Fact name="Pods" value={<Both of={subnets} />}>
          of <Both of={network} />
        </Fact>
        <Fact name="Backend" value={backend}>
          pods’ MTU {mtu}
        </Fact>
        <Fact name="Uplink" value={uplink?.name ?? 'none'} tone={uplink ? '' : 'bad'}>
          {uplink?.why}
          {uplink?.checksumOffload && `; checksum offload ${uplink.checksumOffload.why}`}
        </Fact>
        <Fact name="Store" value={store.name} tone={store.connected ? '' : 'bad'}>
          {store.connected && store.heard !== undefined
            ? `connected, heard of ${span(now - store.heard)} ago`
            : storeWords({ store, started }, now)}
          {unreadable > 0 && `; ${unreadable} entries cannot be read`}
        </Fact>
        <Fact name="Kernel objects" value={wanted} tone={off > 0 ? 'warn' : ''}>
          {off > 0 ? `${off} not as wanted` : 'all as wanted'}, {repaired} repaired
          {steps.count > 0 && <span>; steps: {durationWords(steps)}</span>}
        </Fact>
        {fastPath && (
          <Fact name="Fast path" value={fastPath.state === 'on' ? (fastPath.flows ?? '–') : fastPath.state}>
            {fastPath.state === 'on'
              ? `connections take it; ${fastPath.pods} pods take part, ${fastPath.slowPods} do not`
              : fastPath.why}
          </Fact>
        )}
        {services && (
          <Fact name="Services" value={services.services}>
            {services.frontends} addresses, {services.endpoints} endpoints
          </Fact>
        )}
        {policy && (
          <Fact
            name="Pods with policy"
            value={`${policy.selected.ingress} in, ${policy.selected.egress} out`}
            tone={policy.closed > 0 ? 'bad' : ''}
          >
            of {policy.pods} pods, {policy.policies + policy.clusterPolicies} policies
            {policy.closed > 0 && `, ${policy.closed} pods closed`}
          </Fact>
        )}
        {bgp && (
          <Fact
            name="BGP"
            value={`AS ${bgp.asn}`}
            tone={bgp.sessions.every((one) => one.state === 'Established') ? '' : 'bad'}
          >
            {bgp.sessions.filter((one) => one.state === 'Established').length} of {bgp.sessions.length} established
          </Fact>
        )}
      </dl>
    </section>
  )
}

interface FactProps {
  name: string
  value: ComponentChildren
  tone?: '' | 'warn' | 'bad'
  children?: ComponentChildren
}

function Fact({ name, value, tone = '', children }: FactProps) {
  return (
    <div class={tone}>
      <dt>{name}</dt>
      <dd class="value">{value}</dd>
      <dd>{children}</dd>
    </div>
  )
}

function hour(past: NodePast | null | undefined, name: keyof NodePast['series']): readonly (number | null)[] {
  return past?.series[name].slice(-60) ?? Array.from({ length: 60 }, () => null)
}

// The past is lost at a restart of the agent.
function pastWords({ states, end }: NodePast, now: number): string {
  const minutes = [...states].findIndex((letter) => letter !== '-')
  const known = states.length - minutes
  return known >= 60 ? `as of ${span(now - end)} ago` : `known for ${known} min, since the agent has started`
}
