// lane: quick
// Tests lib/state/kinds/vxlan.ts and link.ts, which reads and changes links of all types.
import assert from 'node:assert/strict'
import { type Link, link } from '../../../../lib/state/kinds/link.ts'

describe('a VXLAN link', () => {
  const want = {
    kind: 'link',
    ns: 'host',
    name: 'flannel.1',
    type: 'vxlan',
    mac: '02:00:00:00:00:01',
    mtu: 1450,
    alias: 'plumb-agent/x',
    up: true,
    vxlan: { id: 1, dev: 'eth0', local: '192.0.2.1', port: 8472, learning: false },
  } as unknown as Link & { vxlan: object }
  const row = {
    ifindex: 4,
    ifname: 'flannel.1',
    flags: ['BROADCAST', 'MULTICAST', 'UP', 'LOWER_UP'],
    mtu: 1450,
    link_type: 'ether',
    address: '02:00:00:00:00:01',
    promiscuity: 0,
    ifalias: 'plumb-agent/x',
    linkinfo: {
      info_kind: 'vxlan',
      info_data: { id: 1, local: '192.0.2.1', link: 'eth0', port: 8472, learning: false, udp_csum: true },
    },
    addr_info: [],
  }
  const seen = (more: object = {}, data: object = {}) =>
    link.read(
      { ...row, ...more, linkinfo: { info_kind: 'vxlan', info_data: { ...row.linkinfo.info_data, ...data } } },
      want,
    ) as Link
  const change = (have: Link, wanted: Link = want) => (link.change?.(wanted, have) ?? []).map(({ text }) => text)

  it('is read back as it was made, over IPv4 and IPv6', () => {
    assert.deepEqual(seen(), want)
    assert.deepEqual(seen({}, { local: undefined, local6: '2001:db8::1', gbp: true, learning: true }).vxlan, {
      ...want.vxlan,
      local: '2001:db8::1',
      gbp: true,
      learning: true,
    })
  })
  it('that is as it should be is not touched', () => assert.deepEqual(change(seen()), []))
  it('is changed in place where the kernel can: alias, MAC, MTU, state, learning', () => {
    assert.deepEqual(
      change(seen({ ifalias: undefined, address: '02:00:00:00:00:09', mtu: 1400, flags: [] }, { learning: true })),
      [
        'link set dev flannel.1 alias plumb-agent/x address 02:00:00:00:00:01 mtu 1450 up',
        'link set dev flannel.1 type vxlan id 1 nolearning',
      ],
    )
    assert.deepEqual(change(seen(), { ...want, up: false }), ['link set dev flannel.1 down'])
  })
  for (const [what, data] of Object.entries({
    id: { id: 2 },
    device: { link: 'eth1' },
    'local address': { local: '192.0.2.9' },
    port: { port: 4789 },
    GBP: { gbp: true },
    group: { group: '239.1.1.1' },
    'external mode': { id: undefined, external: true },
    'l2miss of old flannels': { l2miss: true },
  })) {
    it(`is made again when it differs in what the kernel cannot change: ${what}`, () => {
      const [first, second] = change(seen({}, data))
      assert.equal(first, 'link delete dev flannel.1')
      assert.match(second as string, /^link add name flannel\.1 /)
    })
  }
})
