// Tests agent/connectivity/cases.ts and agent/connectivity/junit.ts.
import assert from 'node:assert/strict'
import { routesOf } from '../../agent/connectivity/cases.ts'
import type { Result } from '../../agent/connectivity/connectivity.ts'
import type { EndFacts, Place } from '../../agent/connectivity/end.ts'
import { junitText } from '../../agent/connectivity/junit.ts'
import { parseIp } from '../../lib/text/ip.ts'

function endOf(n: number): EndFacts {
  const place = (ip: string): Place => ({ v4: { ip: parseIp(ip), tcp: 1, udp: 2 } })
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
