// lane: quick
// Tests cli/trace/fast-path.ts.
import assert from 'node:assert/strict'
import { setsOf, takesFastPath } from '../../../cli/trace/fast-path.ts'
import type { Sight } from '../../../cli/trace/sights.ts'

const TEXT = JSON.stringify({
  nftables: [
    { metainfo: { json_schema_version: 1 } },
    { table: { family: 'inet', name: 'plumb_fast_path' } },
    { set: { name: 'outer', elem: ['eth0', 'flannel.1'] } },
    { set: { name: 'pods4', elem: [{ concat: ['cni0', '10.244.1.2'] }, { concat: ['vethb', '10.244.1.3'] }] } },
    { set: { name: 'pods6', elem: [{ concat: ['vethb', 'fd00:1::3'] }] } },
    { set: { name: 'narrow6', elem: [{ prefix: { addr: 'fd00:2::', len: 64 } }] } },
    { set: { name: 'bridges', elem: [{ concat: ['cni0', 'cni0'] }] } },
  ],
})
const sight = (iif: string, source: string, oif: string, destination: string, more: object = {}) =>
  ({
    place: 'node',
    hook: 'forward',
    direction: 'there',
    family: 'inet',
    iif,
    oif,
    source,
    destination,
    ...more,
  }) as Sight
const takes = (...sights: readonly Sight[]) => takesFastPath(sights, setsOf(TEXT))

describe('the fast path in a trace', () => {
  it('later packets take it when both ends are links or pods of the table', () => {
    assert.ok(takes(sight('cni0', '10.244.1.2', 'flannel.1', '10.244.2.9')))
    assert.ok(takes(sight('cni0', '10.244.1.2', 'vethb', '10.244.1.3')))
    assert.ok(takes(sight('eth0', '192.0.2.1', 'cni0', '10.244.1.2')))
  })

  it('they do not on one bridge, from or to another pod, by another link, and of a packet that the node takes itself', () => {
    assert.ok(!takes(sight('cni0', '10.244.1.2', 'cni0', '10.244.1.7')))
    assert.ok(!takes(sight('cni0', '10.244.1.8', 'flannel.1', '10.244.2.9')))
    assert.ok(!takes(sight('vethb', '10.244.1.2', 'flannel.1', '10.244.2.9')))
    assert.ok(!takes(sight('cni0', '10.244.1.2', 'eth1', '192.0.2.1')))
    assert.ok(!takes(sight('cni0', '10.244.1.2', 'flannel.1', '10.244.2.9', { hook: 'input' })))
    assert.ok(!takes())
  })

  it('they do not to and from a network of IPv6 whose route has an MTU of its own', () => {
    assert.ok(takes(sight('vethb', 'fd00:1::3', 'flannel.1', 'fd00:3::9')))
    assert.ok(!takes(sight('vethb', 'fd00:1::3', 'flannel.1', 'fd00:2::9')))
    assert.ok(!takes(sight('flannel.1', 'fd00:2::9', 'vethb', 'fd00:1::3')))
  })

  it('the answer and the packet that carries it do not count', () => {
    assert.ok(!takes(sight('flannel.1', '10.244.2.9', 'cni0', '10.244.1.2', { direction: 'back' })))
    assert.ok(!takes(sight('cni0', '10.244.1.2', 'flannel.1', '10.244.2.9', { isTunnel: true })))
  })
})
