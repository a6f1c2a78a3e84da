import { useMemo, useState } from 'preact/hooks'
import { line } from '../phrases.ts'
import { nameOf, ordered, reach, trouble, unreachable } from '../reachability.ts'
import type { Peer, Status } from '../status.ts'
import { Both } from './facts.tsx'
import { useWidth } from './hooks.ts'
import { type Layout, layout, type Place } from './layout.ts'

/**
 * A picture of the peers around this node, with the way of packets to each peer. `select` gets the clicked peer's name.
 */
export function Picture({ status, select }: { status: Status; select: (name: string) => void }) {
  const [ref, width] = useWidth<HTMLDivElement>()
  const peers = useMemo(() => ordered(status.peers), [status.peers])
  const drawn = layout(peers.length, Math.max(width, 280))
  return (
    <section class="card network" aria-labelledby="network">
      <h2 id="network">Network</h2>
      <Legend peers={peers} />
      <div
        ref={ref}
        class={`picture ${drawn.look}`}
        style={drawn.look === 'none' ? { height: 'auto' } : { height: `${drawn.height}px` }}
      >
        {width > 0 && drawn.look !== 'none' && (
          <Nodes status={status} peers={peers} drawn={drawn} width={width} select={select} />
        )}
        {drawn.look === 'none' && <Counts peers={peers} />}
        {peers.length === 0 && <p class="empty">No other node has a subnet yet</p>}
      </div>
    </section>
  )
}

function Legend({ peers }: { peers: readonly Peer[] }) {
  const backends = [...new Set(peers.map(({ backend }) => backend))].sort()
  return (
    <p class="legend">
      {backends.map((backend) => (
        <span key={backend} class={way(backend)}>
          {backend}
        </span>
      ))}
      {unreachable(peers).length > 0 && <span class="bad">unreachable</span>}
    </p>
  )
}

// Whether packets go through a tunnel or by a direct route to the node.
function way(backend: string): 'tunnel' | 'straight' {
  return /^(host-gw|alloc)$/.test(backend) ? 'straight' : 'tunnel'
}

interface NodesProps {
  status: Status
  peers: readonly Peer[]
  drawn: Layout
  width: number
  select: (name: string) => void
}

function Nodes({ status, peers, drawn, width, select }: NodesProps) {
  const [shown, show] = useState<number>()
  const [stop, setStop] = useState(0)
  const { centre, places, look } = drawn
  const at = shown === undefined ? undefined : places[shown]
  const peer = shown === undefined ? undefined : peers[shown]
  // The tab key stops only once for all nodes. The arrow keys move between nodes.
  function move(event: KeyboardEvent, i: number): void {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key]
    if (event.key === 'Escape') show(undefined)
    if (!step) return
    event.preventDefault()
    const next = (i + step + peers.length) % peers.length
    setStop(next)
    ;(event.currentTarget as HTMLElement).closest('ul')?.querySelectorAll('button')[next]?.focus()
  }
  return (
    <>
      <Edges peers={peers} drawn={drawn} width={width} shown={shown} />
      <div class="node self" style={spot(centre)}>
        <b>{status.node}</b>
        <Both of={status.subnets} />
        <small>this node</small>
      </div>
      <ul aria-label={`The nodes that ${status.node} sends packets to: arrow keys go from one to the next`}>
        {peers.map((one, i) => (
          <li
            key={line(one.subnets)}
            class="at"
            style={spot(places[i] as Place)}
            onMouseEnter={() => show(i)}
            onMouseLeave={() => show(undefined)}
          >
            <button
              type="button"
              class={`node${trouble(one) === undefined ? '' : ' bad'}`}
              style={look === 'spokes' ? turn(places[i] as Place) : undefined}
              tabIndex={i === Math.min(stop, peers.length - 1) ? 0 : -1}
              aria-label={describe(one)}
              onFocus={() => show(i)}
              onBlur={() => show(undefined)}
              onKeyDown={(event) => move(event, i)}
              onClick={() => select(nameOf(one))}
            >
              <Label peer={one} look={look} />
            </button>
          </li>
        ))}
      </ul>
      {peer && at && <Tip peer={peer} at={at} width={width} below={at.y > centre.y} />}
    </>
  )
}

interface EdgesProps extends Pick<NodesProps, 'peers' | 'drawn' | 'width'> {
  shown: number | undefined
}

function Edges({ peers, drawn, width, shown }: EdgesProps) {
  const { centre, places, height } = drawn
  return (
    <svg width={width} height={height} aria-hidden="true">
      {peers.map((peer, i) => {
        const { subnets, backend } = peer
        const { x, y } = places[i] as Place
        const ends = { x1: centre.x, y1: centre.y, x2: x, y2: y }
        const state = `${trouble(peer) === undefined ? '' : ' bad'}${shown === i ? ' shown' : ''}`
        return (
          <g key={line(subnets)} class={`edge ${way(backend)}${state}`}>
            <line class="tube" {...ends} />
            <line {...ends} />
          </g>
        )
      })}
    </svg>
  )
}

function Label({ peer, look }: { peer: Peer; look: Layout['look'] }) {
  const name = nameOf(peer)
  return (
    <>
      <span>
        <i />
        {look !== 'dots' && <b>{name.replace(/^([a-z][^.]*)\..*$/i, '$1')}</b>}
      </span>
      {look === 'cards' && <code>{peer.subnets.v4 ?? peer.subnets.v6}</code>}
    </>
  )
}

function Tip({ peer, at, width, below }: { peer: Peer; at: Place; width: number; below: boolean }) {
  const left = Math.min(Math.max(at.x, 130), width - 130)
  return (
    <div class={below ? 'tip below' : 'tip'} style={{ left: `${left}px`, top: `${at.y}px` }} aria-hidden="true">
      <b>{nameOf(peer)}</b>
      <span>
        pods <Both of={peer.subnets} />
      </span>
      <span>
        at <Both of={peer.ips} /> by {peer.backend}
      </span>
      {trouble(peer) === undefined ? <span>{reach(peer)}</span> : <span class="why">{trouble(peer)}</span>}
    </div>
  )
}

function Counts({ peers }: { peers: readonly Peer[] }) {
  const backends = [...new Set(peers.map(({ backend }) => backend))].sort()
  return (
    <table class="counts">
      <caption>Too many nodes for a picture: how many there are</caption>
      <thead>
        <tr>
          <th scope="col">Backend</th>
          <th scope="col">Nodes</th>
          <th scope="col">Reachable</th>
          <th scope="col">Unreachable</th>
        </tr>
      </thead>
      <tbody>
        {backends.map((backend) => {
          const all = peers.filter((peer) => peer.backend === backend)
          const lost = unreachable(all).length
          return (
            <tr key={backend}>
              <th scope="row">{backend}</th>
              <td>{all.length}</td>
              <td>{all.length - lost}</td>
              <td class={lost > 0 ? 'bad' : ''}>{lost}</td>
            </tr>
          )
        })}
      </tbody>
    </table>
  )
}

function describe(peer: Peer): string {
  return `${nameOf(peer)}: pods ${line(peer.subnets)}, at ${line(peer.ips)}, by ${peer.backend}, ${reach(peer)}`
}

function spot({ x, y }: Place): { left: string; top: string } {
  return { left: `${x}px`, top: `${y}px` }
}

// Turns names on the left by another 180 degrees, so that no name is upside down.
function turn({ angle }: Place): Record<string, string> {
  return angle > 90
    ? { transform: `rotate(${angle - 180}deg) translateX(-100%)`, flexDirection: 'row-reverse' }
    : { transform: `rotate(${angle}deg)` }
}
