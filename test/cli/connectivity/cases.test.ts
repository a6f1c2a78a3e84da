// lane: quick
// Tests cli/connectivity/cases.ts, cli/connectivity/dns.ts and cli/connectivity/junit.ts.
import assert from 'node:assert/strict'
import { leftOut, routesOf } from '../../../cli/connectivity/cases.ts'
import type { Result } from '../../../cli/connectivity/connectivity.ts'
import { dnsAnswer, dnsQuestion } from '../../../cli/connectivity/dns.ts'
import type { EndFacts, TestEnd } from '../../../cli/connectivity/end.ts'
import { junitText } from '../../../cli/connectivity/junit.ts'
import { parseIp } from '../../../lib/text/ip.ts'

function endOf(n: number): EndFacts {
  const place = (ip: string): TestEnd => ({ v4: { ip: parseIp(ip), tcp: 1, udp: 2 } })
  return {
    network: 'cbr0',
    mtu: 1450,
    node: `n${n}`,
    hasPolicy: false,
    addresses: [parseIp(`192.0.2.${n}`), parseIp(`10.1.${n}.1`)],
    places: { node: place(`192.0.2.${n}`), 'pod 1': place(`10.1.${n}.2`), 'pod 2': place(`10.1.${n}.3`) },
  }
}
const endsOf = (count: number) => new Map(Array.from({ length: count }, (_, i) => [`n${i + 1}`, endOf(i + 1)]))

describe('routesOf()', () => {
  it('all pairs of few nodes, in both directions, and each node alone', () => {
    const lines = routesOf(endsOf(2)).map(
      ({ way, from, to, sources }) => `${way}: ${from.address.ip} → ${to.address.ip} as ${sources.join(', ')}`,
    )
    assert.deepEqual(lines.slice(0, 6), [
      'pod → pod, same node: 10.1.1.2 → 10.1.1.3 as 10.1.1.2',
      'pod → its node: 10.1.1.2 → 192.0.2.1 as 10.1.1.2',
      'node → its pod: 192.0.2.1 → 10.1.1.2 as 192.0.2.1, 192.0.2.1, 10.1.1.1',
      'pod → pod, other node: 10.1.1.2 → 10.1.2.2 as 10.1.1.2',
      'pod → other node: 10.1.1.2 → 192.0.2.2 as 10.1.1.2, 192.0.2.1, 10.1.1.1',
      'node → pod, other node: 192.0.2.1 → 10.1.2.2 as 192.0.2.1, 192.0.2.1, 10.1.1.1',
    ])
    assert.equal(lines.length, 12)
  })
  it('from 20 nodes on, each with three that follow it, in both directions, and other ones in each round', () => {
    const peers = (count: number, round: number) =>
      routesOf(endsOf(count), { isQuick: true, round })
        .filter(({ from, to }) => from.node === 'n1' && to.node !== 'n1')
        .map(({ to }) => to.node)
    assert.equal(peers(19, 0).length, 18)
    assert.deepEqual(peers(20, 0), ['n2', 'n3', 'n4', 'n18', 'n19', 'n20'])
    assert.deepEqual(peers(20, 1), ['n5', 'n6', 'n7', 'n15', 'n16', 'n17'])
    for (const count of [20, 21, 50]) {
      const seen = new Set(Array.from({ length: count }, (_, round) => peers(count, round)).flat())
      assert.equal(seen.size, count - 1)
      for (let round = 0; round < count; round++) assert.ok(peers(count, round).length <= 6)
    }
  })
  it('quick leaves out the addresses of nodes, and a family that a side lacks is no case', () => {
    const ways = routesOf(endsOf(2), { isQuick: true }).map(({ way, family }) => `${way} ${family}`)
    assert.deepEqual([...new Set(ways)], ['pod → pod, same node IPv4', 'pod → pod, other node IPv4'])
  })
})

describe('leftOut()', () => {
  it('SCTP is tested only between nodes whose pods answer it, and the other nodes are named', () => {
    const newer = (end: EndFacts): EndFacts => {
      const sctp = (place: TestEnd): TestEnd => (place.v4 ? { v4: { ...place.v4, sctp: 7070 } } : {})
      return {
        ...end,
        places: { ...end.places, 'pod 1': sctp(end.places['pod 1']), 'pod 2': sctp(end.places['pod 2']) },
      }
    }
    const ends = new Map([
      ['n1', newer(endOf(1))],
      ['n2', endOf(2)],
      ['n3', newer(endOf(3))],
    ])
    const ways = routesOf(ends, { isQuick: true })
      .filter(({ tests }) => tests.includes('SCTP'))
      .map(({ from, to }) => `${from.node} → ${to.node}`)
    assert.deepEqual(ways.sort(), ['n1 → n1', 'n1 → n3', 'n3 → n1', 'n3 → n3'])
    const named = leftOut(ends, { isQuick: true }).find(([what]) => what === 'SCTP')
    assert.deepEqual(named, ['SCTP', 'plumb is too old for it on n2'])
    assert.ok(!leftOut(new Map([['n1', newer(endOf(1))]]), {}).some(([what]) => what === 'SCTP'))
  })
})

describe('junitText()', () => {
  it('escapes what XML gives a meaning, and removes what it forbids', () => {
    const [route] = routesOf(endsOf(1))
    assert.ok(route)
    const says = 'a "<b>" & \'c\'\x00\x1b[1m\nnext'
    const details = () => ['trace: <lost>', 'doctor on n1: DR1']
    const results: Result[] = [
      { test: 'TCP', route, state: 'failed', says, seconds: 1.5 },
      { test: 'full size', route, state: 'not made', says: 'no', seconds: 0 },
      { test: 'UDP', route, state: 'ok', says: 'yes', seconds: 0.25 },
    ]
    const text = junitText(results, details)
    assert.deepEqual(text.split('\n'), [
      '<?xml version="1.0" encoding="UTF-8"?>',
      '<testsuite name="plumb connectivity" tests="3" failures="1" skipped="1" errors="0" time="1.750">',
      '  <testcase classname="pod → pod, same node" name="TCP IPv4 n1 pod 1 (10.1.1.2) → n1 pod 2 (10.1.1.3)" time="1.500"><failure message="a &quot;&lt;b&gt;&quot; &amp; &apos;c&apos;[1m next">trace: &lt;lost&gt;',
      'doctor on n1: DR1</failure></testcase>',
      '  <testcase classname="pod → pod, same node" name="full size IPv4 n1 pod 1 (10.1.1.2) → n1 pod 2 (10.1.1.3)" time="0.000"><skipped message="no"/></testcase>',
      '  <testcase classname="pod → pod, same node" name="UDP IPv4 n1 pod 1 (10.1.1.2) → n1 pod 2 (10.1.1.3)" time="0.250"/>',
      '</testsuite>',
      '',
    ])
  })
})

describe('dnsQuestion() and dnsAnswer()', () => {
  const [ID, NAME] = [0x1234, 'a.svc']
  /** An answer to the question: its flags, and records after a pointer to the name. */
  const answer = (question: Uint8Array, flags: number, ...records: string[]) => {
    const bytes = Buffer.concat([question, ...records.map((hex) => Buffer.from(hex.replaceAll(' ', ''), 'hex'))])
    bytes.writeUInt16BE(flags, 2)
    bytes.writeUInt16BE(records.length, 6)
    return bytes
  }
  const A = 'c00c 0001 0001 0000001e 0004 0a600001'
  const AAAA = 'c00c 001c 0001 0000001e 0010 fd000096000000000000000000000001'
  const question = dnsQuestion(ID, NAME, parseIp('10.0.0.1'))

  it('a question has its number, the name and the type of the family', () => {
    assert.equal(Buffer.from(question).toString('hex'), '123401000001000000000000016103737663000001' + '0001')
    assert.match(Buffer.from(dnsQuestion(ID, NAME, parseIp('fd00::1'))).toString('hex'), /00001c0001$/)
  })
  it('an answer has addresses of both families, or the name of an error', () => {
    assert.deepEqual(dnsAnswer(answer(question, 0x8180, A, AAAA), ID), {
      ips: [parseIp('10.96.0.1'), parseIp('fd00:96::1')],
    })
    assert.deepEqual(dnsAnswer(answer(question, 0x8183), ID), { error: 'NXDOMAIN' })
    assert.deepEqual(dnsAnswer(answer(question, 0x818b), ID), { error: 'error 11' })
  })
  it('what answers another question is none, and a damaged answer is an error', () => {
    assert.equal(dnsAnswer(answer(question, 0x8180, A), ID + 1), undefined)
    assert.equal(dnsAnswer(question, ID), undefined)
    assert.equal(dnsAnswer(new Uint8Array(3), ID), undefined)
    const whole = answer(question, 0x8180, A)
    for (let length = 12; length < whole.length - 4; length++)
      assert.deepEqual(dnsAnswer(whole.subarray(0, length), ID), { error: 'a damaged answer' })
  })
})
