// lane: quick
// Tests lib/text/json-place.ts, and agent/lease/network-configuration.ts.
import assert from 'node:assert/strict'
import { changedKeys, parseNetworkConf } from '../../../agent/lease/network-configuration.ts'
import { jsonLine } from '../../../lib/text/json-place.ts'

const TEXT = '{\n  "Network": "10.244.0.0/16",\n  "backend": {\n    "type": "vxlan",\n    "vni": 5\n  }\n}'

describe('jsonLine()', () => {
  it('gives the line of a key in any case, or of the nearest key above it', () => {
    const lines = ['Network', 'Backend', 'Backend.VNI', 'Backend.Port', 'SubnetLen', ''].map((key) =>
      jsonLine(TEXT, key),
    )
    assert.deepEqual(lines, [2, 3, 5, 3, undefined, undefined])
  })
  it('finds nothing in what is no object, and in what is nested too deep', () => {
    for (const text of ['', '[1]', '7', `${'['.repeat(100_000)}`]) assert.equal(jsonLine(text, 'Network'), undefined)
  })
})

describe('changedKeys()', () => {
  const conf = (more: object) => parseNetworkConf(JSON.stringify({ Network: '10.244.0.0/16', ...more }))
  it('names what differs, without the limits of subnets that follow from another network, and in any case of the keys', () => {
    const before = conf({ Backend: { Type: 'vxlan', VNI: 5, MTU: 1400 } })
    const changed = (more: object) =>
      changedKeys(before, conf({ Backend: { type: 'vxlan', mtu: 1400, vni: 5 }, ...more }))
    assert.deepEqual(changed({}), [])
    assert.deepEqual(changed({ Network: '10.1.0.0/16' }), ['Network'])
    assert.deepEqual(changed({ SubnetLen: 26 }), ['SubnetLen'])
    assert.deepEqual(changed({ SubnetMin: '10.244.9.0' }), ['SubnetMin'])
    assert.deepEqual(changed({ PeerNetworks: ['10.1.0.0/16'] }), ['PeerNetworks'])
    assert.deepEqual(changed({ EnableIPv6: true, IPv6Network: 'fd00::/48' }), [
      'EnableIPv6',
      'IPv6Network',
      'IPv6SubnetLen',
    ])
    assert.deepEqual(changed({ Backend: { Type: 'host-gw' } }), ['Backend.Type', 'Backend.VNI', 'Backend.MTU'])
  })
})
