// lane: quick
// Tests agent/fast-path/table.ts.
import assert from 'node:assert/strict'
import { additionsOf, fixed, rules } from '../../../agent/fast-path/table.ts'
import { parseCidr } from '../../../lib/text/ip.ts'

describe('the table of the fast path', () => {
  const four = parseCidr('10.244.0.0/16')
  const six = parseCidr('fd00:244::/48')

  it('a connection takes it when each end is a link to other nodes, or a pod’s own link and address', () => {
    assert.deepEqual(rules([four], []), [
      'ct state != established accept',
      'meta l4proto != { tcp, udp } accept',
      'iifname . oifname @bridges accept',
      'iifname != @outer iifname . ip saddr != @pods4 accept',
      'oifname != @outer oifname . ip daddr != @pods4 accept',
      'ip saddr != { 10.244.0.0/16 } ip daddr != { 10.244.0.0/16 } accept',
      'meta nfproto { ipv4 } flow add @flows',
    ])
  })

  it('both families have their rules, and a family without pods has none', () => {
    const ofBoth = rules([four, six], [])
    assert.equal(ofBoth.filter((rule) => /ip6 [sd]addr/.test(rule)).length, 3)
    assert.match(ofBoth.at(-1) ?? '', /^meta nfproto \{ ipv4, ipv6 \} flow add/)
    assert.ok(rules([six], []).every((rule) => !/ip [sd]addr/.test(rule)))
  })

  it('networks of IPv6 whose routes have an MTU of their own are left out, whichever end they are', () => {
    const found = rules([four, six], [parseCidr('fd00:244:0:2::/64')])
    assert.deepEqual(found.slice(-3, -1), ['ip6 saddr @narrow6 accept', 'ip6 daddr @narrow6 accept'])
    const lines = fixed([], [six], [parseCidr('fd00:244:0:2::/64')])
    assert.ok(lines.some((line) => line.includes('set narrow6 ') && line.includes('elements = { fd00:244:0:2::/64 }')))
    assert.ok(!fixed([], [six], []).some((line) => line.includes('narrow6')))
  })

  it('one transaction takes the place of any table that is there', () => {
    const lines = fixed(['eth0', 'vetha'], [four], [])
    assert.deepEqual(lines.slice(0, 3), [
      'table inet plumb_fast_path',
      'delete table inet plumb_fast_path',
      'table inet plumb_fast_path {',
    ])
    assert.match(lines[3] ?? '', /devices = \{ "eth0", "vetha" \}; counter; \}$/)
    assert.match(fixed([], [four], [])[3] ?? '', /priority filter; {2}counter; \}$/)
  })

  it('devices come to a flowtable that is there', () => {
    assert.deepEqual(additionsOf(['vethb']), [
      'add flowtable inet plumb_fast_path flows { hook ingress priority filter; devices = { "vethb" }; counter; }',
    ])
    assert.deepEqual(additionsOf([]), [])
  })

  it('more links than the kernel takes in one message come in several, each once', () => {
    const links = Array.from({ length: 600 }, (_, i) => `veth${i}`)
    for (const lines of [fixed(links, [four], []), additionsOf(links)]) {
      const found = lines.map((line) => [...line.matchAll(/"(veth\d+)"/g)].map(([, name]) => name))
      assert.ok(found.every(({ length }) => length <= 255))
      assert.deepEqual(found.flat(), links)
    }
  })
})
