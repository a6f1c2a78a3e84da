// lane: quick
// Tests cli/fuse.ts.
import assert from 'node:assert/strict'
import { fuse } from '../../cli/fuse.ts'

const BRIDGE = { type: 'bridge', bridge: 'cni0', ipam: { type: 'host-local' } }

describe('fuse()', () => {
  it('puts what follows bridge into it, under keys of its own, with settings and capabilities, and says what it did', () => {
    const { list, changes } = fuse({
      cniVersion: '1.0.0',
      name: 'net',
      plugins: [
        { ...BRIDGE, capabilities: { ips: true } },
        { type: 'portmap', snat: false, capabilities: { portMappings: true } },
        { type: 'firewall', ingressPolicy: 'same-bridge' },
        { type: 'bandwidth', capabilities: { bandwidth: true } },
        { type: 'tuning', sysctl: { 'net.core.somaxconn': '500' } },
      ],
    })
    assert.deepEqual(list, {
      cniVersion: '1.0.0',
      name: 'net',
      plugins: [
        {
          ...BRIDGE,
          capabilities: { ips: true, portMappings: true, bandwidth: true },
          portMappings: { snat: false },
          firewall: { ingressPolicy: 'same-bridge' },
          bandwidth: true,
          tuning: { sysctl: { 'net.core.somaxconn': '500' } },
        },
      ],
    })
    assert.deepEqual(changes, [
      'plugins[1] "portmap" is now the key "portMappings" of "bridge", with its capabilities: portMappings',
      'plugins[2] "firewall" is now the key "firewall" of "bridge"',
      'plugins[3] "bandwidth" is now the key "bandwidth" of "bridge", with its capabilities: bandwidth',
      'plugins[4] "tuning" is now the key "tuning" of "bridge"',
    ])
  })

  it('leaves what it does not know where it is, and all that comes after it, for the order counts', () => {
    const plugins = [
      BRIDGE,
      { type: 'tuning', mtu: 1400 },
      { type: 'sbr' },
      { type: 'portmap', capabilities: { portMappings: true } },
    ]
    const { list, changes } = fuse({ name: 'net', plugins })
    assert.deepEqual(list['plugins'], [{ ...BRIDGE, tuning: { mtu: 1400 } }, ...plugins.slice(2)])
    assert.match(
      changes[1] as string,
      /^"sbr", "portmap" stay plugins of their own: "bridge" takes portmap, firewall, bandwidth, tuning, policy in, and only what follows it at once/,
    )
  })

  it('leaves a second one of a kind where it is', () => {
    const { list, changes } = fuse({
      plugins: [BRIDGE, { type: 'tuning', mtu: 1400 }, { type: 'tuning', promisc: true }],
    })
    assert.equal((list['plugins'] as unknown[]).length, 2)
    assert.match(changes[1] as string, /^"tuning" stays a plugin of its own: "bridge" has one already$/)
  })

  it('changes nothing where there is nothing to take in, and what it has made stays as it is', () => {
    const list = { name: 'net', plugins: [{ type: 'macvlan' }, { type: 'portmap' }] }
    assert.deepEqual(fuse(list), {
      list,
      changes: ['nothing is changed: none of the plugins is bridge or ptp, which can take others in'],
    })
    const again = fuse(fuse({ plugins: [BRIDGE, { type: 'firewall' }] }).list)
    assert.deepEqual(again, { list: { plugins: [{ ...BRIDGE, firewall: true }] }, changes: ['nothing is changed'] })
  })

  for (const [what, given] of Object.entries({
    'a single configuration': BRIDGE,
    text: 'x',
    'a list': [],
    'a plugin that is none': { plugins: [7] },
  }))
    it(`refuses ${what}, and says what it wants`, () =>
      assert.throws(() => fuse(given), /want (a list, with "plugins"|an object)/))
})
