// Many nodes, as the collector knows them.

import { isBad } from '../../agent/state/rows.ts'
import { badPairs, type Fleet, type FleetNode } from '../fleet/fleet.ts'
import type { Watched } from './draw.ts'
import type { Line, Table } from './table.ts'
import { countCell, factLines, lostCell, msCell, timeCell, titled } from './words.ts'

const TONES = { ready: 'good', degraded: 'warning', 'not ready': 'error', dead: 'error' } as const
const ORDER = ['not ready', 'dead', 'degraded', 'ready'] as const

/** A fleet as it is shown. `now` is in milliseconds since 1970. */
export function watchedFleet(fleet: Fleet, now: number): Watched {
  const { nodes, sentence, counts, note, at } = fleet
  const isBadFleet = counts['not ready'] + counts.dead > 0
  const isOdd = counts.degraded > 0 || note !== undefined || nodes.length === 0
  const worstFirst = ORDER.flatMap((state) => nodes.filter((one) => one.state === state))
  return {
    title: `${nodes.length} ${nodes.length === 1 ? 'node' : 'nodes'}`,
    sentence,
    tone: isBadFleet ? 'error' : isOdd ? 'warning' : 'good',
    at,
    tables: {
      nodes: nodesOf(worstFirst, fleet, now),
      pairs: pairsOf(fleet, now),
      pods: podsOf(worstFirst),
      drops: dropsOf(worstFirst),
    },
  }
}

function nodesOf(nodes: readonly FleetNode[], fleet: Fleet, now: number): Table {
  const lines = nodes.map((node): Line => {
    const { name, zone = '', state, peers = {}, drift, repairs, version = '', cause = '' } = node
    const all = Object.values(peers).reduce((sum, count) => sum + count, 0)
    const lost = all - (peers.reachable ?? 0) - (peers.unknown ?? 0)
    const peerCell = node.peers ? { text: `${all - lost} of ${all}`, value: all - lost } : ''
    return {
      key: name,
      tone: TONES[state],
      cells: [name, zone, state, peerCell, countCell(drift), countCell(repairs), version, cause],
      details: () => detailsOf(node, fleet, now),
    }
  })
  const headings = ['NODE', 'ZONE', 'STATE', 'PEERS', 'DRIFT', 'REPAIRS', 'VERSION', 'WHY']
  return { headings, lines, empty: 'no agent is known yet' }
}

function detailsOf(node: FleetNode, { oneWay }: Fleet, now: number): string[] {
  const { name, state, cause, zone, version, backend, store, at, deadSince, slowMs, findings = [], worst = [] } = node
  const time = (when: number | undefined) => {
    const cell = timeCell(when, now)
    return typeof cell === 'object' ? cell.text : undefined
  }
  const ways = oneWay.filter(({ from, to }) => from === name || to === name)
  const lines = worst.map((peer) => {
    const since = peer.since === undefined ? '' : `, since ${time(peer.since)}`
    const probes = peer.sent === undefined ? '' : `, ${peer.lost ?? 0} of ${peer.sent} probes lost`
    return `${peer.name}: ${peer.state}${probes}${since}`
  })
  return [
    ...factLines([
      ['state', state],
      ['why', cause],
      ['since', time(deadSince)],
      ['last answer', time(at)],
      ['slow', slowMs === undefined ? undefined : `the last answer took ${(slowMs / 1000).toFixed(1)} s`],
      ['zone', zone],
      ['version', version],
      ['backend', backend],
      ['store', store && `${store.name}, ${store.connected ? 'connected' : (store.error ?? 'away')}`],
    ]),
    ...titled('Worst peers', lines),
    ...titled(
      'One way only',
      ways.map(({ from, to }) => `from ${from} to ${to} packets are lost, the other way they are not`),
    ),
    ...findings.flatMap(({ code, text, commands }) => titled(`${code}: ${text}`, commands)),
  ]
}

function pairsOf(fleet: Fleet, now: number): Table {
  const single = new Set(fleet.oneWay.map(({ from, to }) => JSON.stringify([from, to])))
  const lines = badPairs(fleet).map((pair): Line => {
    const { from, name, state, lost, sent, ms, since } = pair
    const isOneWay = single.has(JSON.stringify([from, name]))
    const lostPart = lostCell(lost, sent)
    const sinceCell = timeCell(since, now)
    return {
      key: `${from} to ${name}`,
      tone: isBad(pair) ? 'error' : 'warning',
      cells: [from, name, state, lostPart, msCell(ms), sinceCell, isOneWay ? 'one way only' : ''],
      details: () => [
        ...factLines([
          ['from', from],
          ['to', name],
          ['state', state],
          ['lost', typeof lostPart === 'object' ? `${lostPart.text} probes` : undefined],
          ['since', typeof sinceCell === 'object' ? sinceCell.text : undefined],
          ['back', isOneWay ? 'answers: packets are lost one way only' : undefined],
        ]),
        ...titled(`On ${from}`, ['plumb doctor DR17', 'plumb leases']),
      ],
    }
  })
  const headings = ['FROM', 'TO', 'STATE', 'LOST', 'RTT', 'SINCE', 'WAY']
  return { headings, lines, empty: 'no pair of nodes loses packets' }
}

function podsOf(nodes: readonly FleetNode[]): Table {
  const known = nodes.filter(({ pods, services }) => pods || services)
  const lines = known.map((node): Line => {
    const { name, pods, policies, services } = node
    const cells = [pods?.all, pods?.closed, policies, services?.services, services?.endpoints].map(countCell)
    const isClosed = (pods?.closed ?? 0) > 0
    const details = () =>
      factLines([
        ['pods', pods && `${pods.all}, ${pods.closed} of them closed`],
        ['policies', policies === undefined ? undefined : `${policies}`],
        ['Services', services && `${services.services}, ${services.endpoints} endpoints`],
      ])
    const hint = ['', `On ${name}`, '  plumb top pods', '  plumb policy']
    return {
      key: name,
      tone: isClosed ? 'error' : 'good',
      cells: [name, ...cells],
      details: () => [...details(), ...hint],
    }
  })
  const headings = ['NODE', 'PODS', 'CLOSED', 'POLICIES', 'SERVICES', 'ENDPOINTS']
  return { headings, lines, empty: 'no agent enforces NetworkPolicy or serves Services' }
}

function dropsOf(nodes: readonly FleetNode[]): Table {
  const dropping = nodes.flatMap((node) => ((node.drops ?? 0) > 0 ? [node] : []))
  const sorted = dropping.sort((a, b) => (b.drops ?? 0) - (a.drops ?? 0))
  const lines = sorted.map(({ name, zone = '', drops }): Line => {
    const details = () => [`${drops} refused packets in the last minute`, '', `On ${name}`, '  plumb top drops']
    return { key: name, tone: 'warning', cells: [name, zone, countCell(drops)], details }
  })
  const headings = ['NODE', 'ZONE', 'IN A MINUTE']
  return { headings, lines, empty: 'no agent has logged a refused packet in the last minute' }
}
