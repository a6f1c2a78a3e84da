// lane: quick
// Tests agent/kernel/events.ts.
import assert from 'node:assert/strict'
import { bridgeEvent, type Event, ipEvent } from '../../../agent/kernel/events.ts'
import fc from '../../support/properties.ts'

describe('ipEvent() and bridgeEvent()', () => {
  const MAC = '02:00:00:00:00:02'

  // As iproute2 6.1 prints them with -o.
  for (const [line, text] of Object.entries({
    '10.244.2.0/24 nhid 7 via 10.244.2.0 dev flannel.1 proto 112 onlink ': 'route add 10.244.2.0/24 proto 112 nhid 7',
    '10.244.2.0/24 via 10.244.2.0 dev flannel.1 proto 112 onlink mtu 1354 ':
      'route add 10.244.2.0/24 mtu 1354 proto 112 via 10.244.2.0 dev flannel.1 onlink',
    'fd00:244:2::/64 via fd00:244:2:: dev flannel-v6.1 proto 112 metric 1024 onlink mtu 1334 pref medium':
      'route add fd00:244:2::/64 mtu 1334 proto 112 via fd00:244:2:: dev flannel-v6.1 onlink',
    '10.244.2.0/24 via 10.244.2.0 dev flannel.1 proto 112 onlink mtu lock 1354 ': '',
    'Deleted 10.244.2.0/24 via 192.0.2.2 dev eth0 proto 112 ':
      'gone route add 10.244.2.0/24 proto 112 via 192.0.2.2 dev eth0',
    'fd00:244:2::/64 nhid 7 via fd00:244:2:: dev flannel-v6.1 proto 112 metric 1024 onlink pref medium':
      'route add fd00:244:2::/64 proto 112 nhid 7',
    'blackhole 10.244.1.0/24 proto 112 metric 4294967295 ':
      'route add blackhole 10.244.1.0/24 metric 4294967295 proto 112',
    'Deleted blackhole fd00:244:1::/64 dev lo proto 112 metric 4294967295 pref medium':
      'gone route add blackhole fd00:244:1::/64 metric 4294967295 proto 112',
    '10.1.2.3 dev pod1 scope link ': 'route add 10.1.2.3/32 dev pod1',
    '10.244.7.0/24 proto 112 \\\tnexthop via 10.0.0.3 dev d0 weight 1 \\\tnexthop via 10.0.0.4 dev d0 weight 1 ': '',
    [`10.244.2.0 dev flannel.1 lladdr ${MAC} PERMANENT proto 112 `]: `neigh replace 10.244.2.0 lladdr ${MAC} dev flannel.1 nud permanent protocol 112`,
    'Deleted 10.244.2.0 dev flannel.1 FAILED proto 112 ': 'gone ',
    [`fd00:244:2:: dev flannel-v6.1 lladdr ${MAC} PERMANENT proto 112 `]: `neigh replace fd00:244:2:: lladdr ${MAC} dev flannel-v6.1 nud permanent protocol 112`,
    'Deleted fd00:244:2:: dev flannel-v6.1 FAILED proto 112 ': 'gone ',
    'fd00:244:2:: via 2001:db8::2 dev eth0 proto 112 metric 1024 pref medium':
      'route add fd00:244:2::/128 proto 112 via 2001:db8::2 dev eth0',
    [`192.0.2.2 dev eth0 lladdr ${MAC} REACHABLE `]: '',
    'id 7 via 10.244.2.0 dev flannel.1 scope link proto 112 onlink ':
      'nexthop add id 7 via 10.244.2.0 dev flannel.1 onlink proto 112',
    'Deleted id 7 via 192.0.2.2 dev eth0 scope link proto 112 ':
      'gone nexthop add id 7 via 192.0.2.2 dev eth0 proto 112',
    'id 8 group 1/2 proto zebra ': '',
    [`4: flannel.1: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1450 qdisc noqueue state UNKNOWN group default \\    link/ether ${MAC} brd ff:ff:ff:ff:ff:ff`]: `up mtu 1450 ${MAC}`,
    [`Deleted 4: flannel.1@NONE: <BROADCAST,MULTICAST> mtu 1450 qdisc noop state DOWN group default \\    link/ether ${MAC} brd ff:ff:ff:ff:ff:ff`]: `gone down mtu 1450 ${MAC}`,
    '4: flannel.1    inet 10.244.1.0/32 scope global flannel.1\\       valid_lft forever preferred_lft forever':
      'addr replace 10.244.1.0/32 dev flannel.1',
    'Deleted 5: flannel-v6.1    inet6 fd00:244:1::/128 scope global nodad \\       valid_lft forever preferred_lft forever':
      'gone addr replace fd00:244:1::/128 nodad dev flannel-v6.1',
    '4: ppp0    inet 10.0.0.1 peer 10.0.0.2/32 scope global ppp0\\       valid_lft forever preferred_lft forever': '',
  })) {
    it(`reads ${line}`, () => assert.equal(told(ipEvent(line)), text))
  }
  for (const [line, text] of Object.entries({
    [`${MAC} dev flannel.1 dst 192.0.2.2 self permanent`]: `fdb replace ${MAC} dev flannel.1 dst 192.0.2.2 self permanent`,
    [`Deleted ${MAC} dev flannel.1 dst 192.0.2.2 self permanent`]: `gone fdb replace ${MAC} dev flannel.1 dst 192.0.2.2 self permanent`,
    [`${MAC} dev flannel.1 dst 192.0.2.2 self `]: '',
    [`${MAC} dev flannel.1 dst 192.0.2.2 port 99 self permanent`]: '',
  })) {
    it(`reads ${line} of bridge`, () => assert.equal(told(bridgeEvent(line)), text))
  }
  it('have nothing to say of what the agent never makes', () => {
    for (const line of [
      '',
      '    link/ether 02:00:00:00:00:02 brd ff:ff:ff:ff:ff:ff',
      'Timestamp: Sat Nov 21 12:31:29 2026 125752 usec',
      'local 10.0.0.1 dev eth0 table local proto kernel scope host src 10.0.0.1 ',
      'prohibit 10.244.1.0/24 proto 112 ',
      'blackhole default proto boot table 7 ',
      '10.244.2.0/24 via 192.0.2.2 dev eth0 table 100 proto 112 ',
      `192.0.2.2 dev flannel.1 lladdr ${MAC} NOARP PERMANENT `,
      `Deleted dev d0 lladdr ${MAC} PERMANENT `,
      'ipv4 dev eth0 rp_filter loose ',
    ])
      assert.equal(ipEvent(line), undefined, line)
    for (const line of ['', `${MAC} dev cni0 master cni0 permanent`, `${MAC} dev cni0 self permanent`])
      assert.equal(bridgeEvent(line), undefined, line)
  })
  it('never throw, whatever a line says', () => {
    const words = fc.constantFrom(
      'Deleted',
      '4:',
      'flannel.1:',
      'id',
      '7',
      'via',
      'dev',
      'inet',
      'inet6',
      'lladdr',
      'PERMANENT',
      'nhid',
      'proto',
      'default',
      '10.0.0.0/8',
      'fd00::/64',
      'dst',
      'self',
      'mtu',
      '<UP>',
      '\\',
      MAC,
    )
    fc.assert(
      fc.property(fc.array(fc.oneof(words, fc.string()), { maxLength: 9 }), (line) => {
        ipEvent(line.join(' '))
        bridgeEvent(line.join(' '))
      }),
    )
  })
})

function told(event: Event | undefined): string | undefined {
  return event && `${event.gone ? 'gone ' : ''}${event.text}`
}
