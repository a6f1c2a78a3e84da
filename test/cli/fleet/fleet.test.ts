// lane: quick
// Tests cli/fleet/fleet.ts, cli/fleet/matrix.ts, cli/fleet/zones.ts, cli/fleet/answer.ts and
// cli/fleet/port-forward.ts.
import assert from 'node:assert/strict'
import { gzipSync } from 'node:zlib'
import type { Finding, Peer } from '../../../agent/state/status.ts'
import { readSummary, summaryFromStatus } from '../../../cli/fleet/answer.ts'
import { badPairs, type Fleet, judge, type KnownAgent } from '../../../cli/fleet/fleet.ts'
import { replyOf } from '../../../cli/fleet/port-forward.ts'
import { cluster, knownOf, type Member, silent } from '../../support/fleet.ts'
import { generator } from '../../support/random.ts'

const NOW = Date.UTC(2026, 10, 1, 12, 0, 0)
const MEGABYTE = 1_000_000
const DEAD = { why: 'no answer within 5 s', since: NOW - 60_000 }

describe('a fleet is judged', () => {
  let members: Member[]
  beforeEach(() => {
    members = cluster(30)
  })
  /** Loses the packets of all pairs for which this is true. */
  function lose(isLost: (from: Member, to: string) => boolean): void {
    for (const member of members) {
      const peers = member.source.status().peers.map((peer) => (isLost(member, peer.node ?? '') ? silent(peer) : peer))
      if (peers.some(({ probe }) => probe?.state === 'silent'))
        member.source.set({ peers, degraded: ['some peers do not answer'] })
    }
  }
  const known = (failures: Readonly<Record<string, KnownAgent['failure']>> = {}) =>
    members.map((member): KnownAgent => knownOf(member, NOW, failures[member.name]))
  const zoneOf = (name: string) => members.find((one) => one.name === name)?.zone

  it('all are well: one short sentence', () => {
    const { sentence, lost, oneWay, counts } = judge(known(), NOW)
    assert.equal(sentence, '30 of 30 nodes are ready')
    assert.deepEqual([lost, oneWay, counts.ready], [[], [], 30])
  })
  it('a zone that is lost is one sentence and one block, whatever else there is', () => {
    lose(({ zone }, to) => (zone === 'b') !== (zoneOf(to) === 'b'))
    const fleet = judge(known({ 'node-1': DEAD }), NOW)
    assert.equal(
      fleet.sentence,
      '0 of 30 nodes are ready; 29 degraded; 1 does not answer (node-1: no answer within 5 s); zone b and the other zones do not reach each other: 10 nodes',
    )
    assert.deepEqual(
      fleet.lost.map(({ kind, name }) => [kind, name]),
      [['zone', 'b']],
    )
    const pattern = blocks(fleet)
    assert.match(pattern, /^a b c\n/)
    assert.deepEqual(pattern.split('\n').slice(1), ['. x .', 'x . x', '. x .'])
    assert.deepEqual(
      fleet.zones.map(({ from, to, pairs, bad }) => `${from}${to} ${bad}/${pairs}`),
      ['aa 0/81', 'ab 90/90', 'ac 0/90', 'ba 100/100', 'bb 0/90', 'bc 100/100', 'ca 0/100', 'cb 100/100', 'cc 0/90'],
    )
  })
  it('a zone whose agents do not answer either is the same sentence', () => {
    lose((_, to) => zoneOf(to) === 'b')
    const failures = Object.fromEntries(members.filter(({ zone }) => zone === 'b').map(({ name }) => [name, DEAD]))
    const { sentence } = judge(known(failures), NOW)
    assert.match(
      sentence,
      /; zone b and the other zones do not reach each other: 10 nodes, 10 of them without an answer/,
    )
  })
  it('of two zones without a way between them the smaller one is named; no zone is when nobody reaches anybody', () => {
    const smaller = new Set(members.slice(0, 8).map(({ name }) => name))
    for (const member of members) {
      const zone = (name: string) => (smaller.has(name) ? 'x' : 'y')
      const peers = member.source.status().peers.map((peer): Peer => {
        const to = zone(peer.node ?? '')
        return to === zone(member.name) ? { ...peer, zone: to } : silent({ ...peer, zone: to })
      })
      member.source.set({ peers, zone: zone(member.name) })
    }
    assert.deepEqual(
      judge(known(), NOW).lost.map(({ text }) => text),
      ['zone x and the other zones do not reach each other: 8 nodes'],
    )
    lose(() => true)
    assert.deepEqual(judge(known(), NOW).lost, [])
  })
  it('a node that nobody reaches is named once, and not its 29 pairs', () => {
    lose((from, to) => from.name === 'node-7' || to === 'node-7')
    const { sentence, oneWay } = judge(known(), NOW)
    assert.equal(sentence, '0 of 30 nodes are ready; 30 degraded; node-7 is not reached by 29 of 29')
    assert.deepEqual(oneWay, [])
  })
  it('packets that are lost one way only are found, and named', () => {
    lose((from, to) => from.name === 'node-4' && to === 'node-9')
    const one = judge(known(), NOW)
    assert.deepEqual(one.oneWay, [{ from: 'node-4', to: 'node-9' }])
    assert.equal(
      one.sentence,
      '29 of 30 nodes are ready; 1 degraded; packets from node-4 to node-9 are lost one way only',
    )
    lose((from, to) => from.name === 'node-9' && to === 'node-4')
    assert.deepEqual(judge(known(), NOW).oneWay, [])
    lose((from, to) => from.name === 'node-5' && /^node-2/.test(to))
    const many = judge(known(), NOW)
    assert.equal(many.oneWay.length, 11)
    assert.match(many.sentence, /packets from node-5 to node-22 are lost one way only, and so 10 more pairs$/)
  })
  it('in generated fleets: one-way pairs are those that were cut, and the worst pairs are told first', () => {
    for (let seed = 1; seed <= 20; seed++) {
      const random = generator(seed)
      members = cluster(20)
      const cut = new Set<string>()
      const chance = (n: number) => Math.floor(random() * n)
      while (cut.size < 12) {
        const [from, to] = [chance(20) + 1, chance(20) + 1]
        if (from !== to) cut.add(`node-${from} node-${to}`)
      }
      lose((from, to) => cut.has(`${from.name} ${to}`))
      const fleet = judge(known(), NOW)
      const wanted = [...cut].filter((pair) => !cut.has(pair.split(' ').reverse().join(' '))).sort()
      assert.deepEqual(fleet.oneWay.map(({ from, to }) => `${from} ${to}`).sort(), wanted, `seed ${seed}`)
      const pairs = badPairs(fleet).map(({ from, name }) => `${from} ${name}`)
      assert.deepEqual(pairs.slice().sort(), [...cut].sort(), `seed ${seed}`)
    }
  })
  it('the dead are grouped by reason, and keep what was known of them', () => {
    const refused = { why: 'no agent listens there: the connection is refused', since: NOW }
    const fleet = judge(known({ 'node-1': DEAD, 'node-2': refused, 'node-3': DEAD }), NOW)
    assert.deepEqual(fleet.dead, [
      { what: DEAD.why, nodes: ['node-1', 'node-3'] },
      { what: refused.why, nodes: ['node-2'] },
    ])
    const node = fleet.nodes.find(({ name }) => name === 'node-1')
    assert.deepEqual(
      [node?.zone, node?.state, node?.cause, node?.deadSince, node?.version],
      ['a', 'dead', DEAD.why, DEAD.since, '0.2.0'],
    )
    assert.equal(fleet.sentence, '27 of 30 nodes are ready; 3 do not answer (node-1, node-3, node-2)')
  })
  it('nodes are by zone and by the value of numbers, versions newest first, findings by check', () => {
    const finding: Finding = { code: 'DR9', title: 'x', severity: 'error', text: 'FORWARD drops', commands: ['nft x'] }
    members[4]?.source.set({ version: '0.10.0', findings: [finding] })
    members[6]?.source.set({ findings: [finding, { ...finding, code: 'DR1', severity: 'warning' }] })
    const { nodes, versions, findings } = judge(known(), NOW)
    assert.deepEqual(
      nodes.slice(0, 4).map(({ name }) => name),
      ['node-1', 'node-4', 'node-7', 'node-10'],
    )
    assert.deepEqual(Object.entries(versions), [
      ['0.10.0', 1],
      ['0.2.0', 29],
    ])
    assert.deepEqual(
      findings.map(({ code, nodes: on }) => [code, on]),
      [
        ['DR9', ['node-7', 'node-5']],
        ['DR1', ['node-7']],
      ],
    )
  })
  it('above 300 nodes there is no matrix; lost zones and nodes are found all the same', () => {
    members = cluster(360)
    lose((from, to) => (from.zone === 'c') !== (zoneOf(to) === 'c') || to === 'node-7')
    const fleet = judge(known(), NOW)
    assert.equal(fleet.matrix, undefined)
    assert.deepEqual(
      fleet.lost.map(({ text }) => text),
      ['zone c and the other zones do not reach each other: 120 nodes', 'node-7 is not reached by 359 of 359'],
    )
    members = cluster(360)
    lose((_, to) => to === 'node-7')
    assert.deepEqual(
      judge(known(), NOW).lost.map(({ text }) => text),
      ['node-7 is not reached by 359 of 359'],
    )
  }).timeout(20_000)
  it('an agent that gives the name of another node takes no place of it: that of a node that answers, is dead, or is known by its address', () => {
    const members = cluster(4)
    const [first, second, third] = members as [Member, Member, Member]
    const liar = (name: string, as: string) => {
      const one = knownOf(third, NOW)
      return { ...one, name, summary: { ...(one.summary as object), node: as, state: 'not ready' } } as KnownAgent
    }
    const dead: KnownAgent = { name: second.name, failure: { why: 'no answer', since: NOW } }
    const names = ({ nodes }: Fleet) => nodes.map(({ name, state }) => `${name} ${state}`).sort()
    assert.deepEqual(names(judge([liar('node-9', first.name), knownOf(first, NOW)], NOW)), [
      'node-1 ready',
      'node-9 not ready',
    ])
    assert.deepEqual(names(judge([liar('node-9', second.name), dead], NOW)), ['node-2 dead', 'node-9 not ready'])
    const byAddress = { ...knownOf(first, NOW), name: '192.0.2.1:9469' }
    const both = judge([byAddress, liar('192.0.2.9:9469', first.name)], NOW)
    assert.deepEqual(names(both), ['192.0.2.9:9469 not ready', 'node-1 ready'])
    assert.deepEqual(both.matrix?.names.toSorted(), ['192.0.2.9:9469', 'node-1'])
  })
  it('no agent at all, and a note, are a sentence', () => {
    assert.equal(judge([], NOW).sentence, 'no agent is known yet')
    assert.equal(
      judge([{ name: 'node-1' }], NOW).sentence,
      '0 of 1 node is ready; 1 does not answer (node-1: not asked yet)',
    )
    assert.equal(judge([], NOW, 'The API is away').sentence, 'The API is away')
    assert.equal(judge(known().slice(0, 1), NOW, 'The API is away').sentence, '1 of 1 node is ready; The API is away')
  })
})

describe('the answers of agents', () => {
  it('a status of an older version gives the summary that the agent would give', () => {
    const [, second] = cluster(3)
    const status = { ...(second as Member).source.status(), repairs: [{ at: NOW - 1000, what: 'x' }] }
    const { findings: _, zone: __, ...older } = status
    const { at, zone, ...told } = summaryFromStatus(JSON.stringify(older), NOW)
    assert.equal(zone, undefined)
    assert.deepEqual([at, told.node, told.repairs, told.row?.state], [NOW, 'node-2', 1, 'rr'])
    const {
      at: _at,
      zone: _zone,
      repairs: _repairs,
      ...newer
    } = knownOf(second as Member, NOW).summary as object as Record<string, unknown>
    const { repairs, ...rest } = told
    assert.deepEqual(JSON.parse(JSON.stringify(rest)), JSON.parse(JSON.stringify(newer)))
  })
  it('what is no summary is refused with the key that is wrong', () => {
    const text = (change: object) => JSON.stringify({ ...knownOf(cluster(3)[0] as Member, NOW).summary, ...change })
    assert.equal(readSummary(text({ more: 1 })).node, 'node-1')
    for (const [change, why] of [
      [{ state: 'fine' }, /state is "fine"$/],
      [{ node: 'x'.repeat(254) }, /node is 254$/],
      // It becomes part of a command for ssh.
      [{ node: '-oProxyCommand=id' }, /node is "-oProxyCommand=id"$/],
      [{ node: 'a; id' }, /node is "a; id"$/],
      [{ at: 9e15 }, /at is 9000000000000000$/],
      [{ worst: [{ name: 'p', state: 'silent', since: 9e15 }] }, /worst\.0\.since is 9000000000000000$/],
      [{ repairs: 1e300 }, /repairs is 1e\+300$/],
      [{ worst: Array.from({ length: 51 }, () => ({ name: 'p', state: 'silent' })) }, /worst is 51$/],
      [
        { zones: Object.fromEntries(Array.from({ length: 51 }, (_, i) => [i, { peers: 1, bad: 1 }])) },
        /zones is Object$/,
      ],
      [{ row: { name: Array(1001).fill('p'), state: '', lost: [], ms: [] } }, /row is Object$/],
      [{ drift: -1 }, /drift is -1$/],
      [{ worst: [{ name: 1 }] }, /worst\.0\.name is 1$/],
      [{ row: { name: ['a'], state: 'rr', lost: [0], ms: [0] } }, /the columns of its row differ in length/],
    ] as const)
      assert.throws(() => readSummary(text(change)), why)
    const commands = ['ip link set dev eth0 up', 'ip link\nid', 'echo \u202eok']
    const finding = { code: 'DR1', severity: 'error', text: 'x', commands }
    assert.deepEqual(readSummary(text({ findings: [finding] })).findings[0]?.commands, commands.slice(0, 1))
    assert.throws(() => readSummary('[]'), /its answer is no summary of plumb/)
    assert.throws(() => readSummary('nothing'), /no JSON: another program answers there/)
  })
  it('an HTTP answer is read when it is whole, however it is cut into pieces', () => {
    const body = JSON.stringify({ text: 'é'.repeat(1000) })
    const packed = gzipSync(body)
    const head = `HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: ${packed.length}\r\n\r\n`
    const all = Buffer.concat([Buffer.from(head), packed])
    for (let length = 0; length < all.length; length++)
      assert.equal(replyOf(all.subarray(0, length), MEGABYTE), undefined)
    assert.deepEqual(replyOf(all, MEGABYTE), { status: 200, body })
    const texts: [string, RegExp][] = [
      ['SSH-2.0-x\r\n\r\n', /not HTTP/],
      ['HTTP/1.1 200 OK\r\n\r\n', /not HTTP with a length/],
      ['x'.repeat(17_000), /not HTTP/],
      ['HTTP/1.1 200 OK\r\nContent-Length: 1000001\r\n\r\n', /longer than 1 MB/],
    ]
    for (const [text, why] of texts) assert.throws(() => replyOf(Buffer.from(text), MEGABYTE), why)
    const bomb = gzipSync(Buffer.alloc(20_000_000))
    const bombed = `HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: ${bomb.length}\r\n\r\n`
    assert.throws(() => replyOf(Buffer.concat([Buffer.from(bombed), bomb]), MEGABYTE), /longer than 1 MB/)
  })
})

// The zones of the matrix, and whether all known pairs from one to the other are lost (x) or none is (.).
function blocks({ matrix }: Fleet): string {
  const { zones = [], rows = [] } = matrix ?? {}
  const names = [...new Set(zones)]
  const block = (from: string, to: string) => {
    const cells = rows.flatMap(({ states }, i) => [...states].filter((_, j) => zones[i] === from && zones[j] === to))
    const seen = [...new Set(cells.filter((letter) => letter !== '-' && letter !== ' '))].join('')
    return seen === 'r' ? '.' : seen === 's' ? 'x' : '?'
  }
  const lines = names.map((from) => names.map((to) => block(from, to)).join(' '))
  // Nodes of one zone stand together.
  assert.equal(zones.filter((zone, i) => zone !== zones[i - 1]).length, names.length)
  return [names.join(' '), ...lines].join('\n')
}
