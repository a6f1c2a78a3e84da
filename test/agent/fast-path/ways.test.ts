// lane: quick
// Tests agent/fast-path/ways.ts.
import assert from 'node:assert/strict'
import { type WayFacts, waysOf } from '../../../agent/fast-path/ways.ts'
import type { Entry } from '../../../lib/journal/journal.ts'
import type { LinkFacts } from '../../../lib/os/links.ts'
import { parseCidr } from '../../../lib/text/ip.ts'

const link = (index: number, name: string, more: Partial<LinkFacts> = {}) =>
  ({ index, name, kind: 'veth', isUp: true, master: undefined, ...more }) as LinkFacts
const pod = (name: string, ips: readonly string[], more: Partial<Entry> = {}) =>
  ({
    ips,
    parts: { link: { own: [{ kind: 'link', ns: 'host', type: 'veth', name }] } },
    ...more,
  }) as unknown as Entry

const LINKS = [
  link(2, 'eth0', { kind: '' }),
  link(3, 'flannel.1', { kind: 'vxlan' }),
  link(4, 'cni0', { kind: 'bridge' }),
  link(10, 'vetha', { master: 4 }),
  link(11, 'vethb'),
]
const ways = (more: Partial<WayFacts> = {}) =>
  waysOf({
    entries: [pod('vetha', ['10.244.1.2']), pod('vethb', ['10.244.1.3', 'fd00::3'])],
    links: LINKS,
    filtered: new Set(),
    outer: ['eth0', 'flannel.1'],
    subnets: [parseCidr('10.244.1.0/24'), parseCidr('fd00::/64')],
    narrow: [],
    seesPorts: true,
    ...more,
  })

describe('what takes part in the fast path', () => {
  it('the uplink, the devices of the backend, and each pod with its link, its addresses and the way of its packets', () => {
    assert.deepEqual(ways(), {
      outer: ['eth0', 'flannel.1'],
      pods: [
        { link: 'vetha', entrance: 'cni0', addresses: ['10.244.1.2'] },
        { link: 'vethb', entrance: 'vethb', addresses: ['10.244.1.3', 'fd00::3'] },
      ],
      unfinished: [],
      bridges: ['cni0'],
      narrow: [],
      slow: 0,
      isBusy: false,
    })
  })

  it('a pod whose packets a filter of tc may send elsewhere, and one whose link is down or gone, go by the rules', () => {
    assert.deepEqual(
      ways({ filtered: new Set([10]) }).pods.map((one) => one.link),
      ['vethb'],
    )
    assert.equal(ways({ filtered: new Set([10]) }).slow, 1)
    const down = LINKS.map((one) => (one.index === 11 ? { ...one, isUp: false } : one))
    assert.deepEqual([ways({ links: down }).pods.length, ways({ links: down }).slow], [1, 1])
    const gone = LINKS.filter(({ index }) => index !== 11)
    assert.deepEqual([ways({ links: gone }).pods.length, ways({ links: gone }).slow], [1, 1])
  })

  it('a port of something that is no bridge goes by the rules', () => {
    const inVrf = LINKS.map((one) => (one.index === 4 ? { ...one, kind: 'vrf' } : one))
    assert.deepEqual(
      ways({ links: inVrf }).pods.map((one) => one.link),
      ['vethb'],
    )
  })

  it('a port of a bridge goes by the rules where the kernel does not look through a bridge', () => {
    const found = ways({ seesPorts: false })
    assert.deepEqual([found.pods.map((one) => one.link), found.bridges, found.slow], [['vethb'], [], 1])
  })

  it('a pod that a plugin is at work on comes later', () => {
    const found = ways({ entries: [pod('vetha', ['10.244.1.2'], { unfinished: true })] })
    assert.deepEqual([found.pods, found.slow, found.isBusy], [[], 0, true])
    assert.deepEqual(
      found.unfinished.map((one) => one.link),
      ['vetha'],
    )
    const gone = ways({ entries: [pod('vethx', ['10.244.1.2'], { unfinished: true })] })
    assert.deepEqual([gone.unfinished, gone.slow, gone.isBusy], [[], 0, true])
  })

  it('pods and addresses of other networks are not the agent’s', () => {
    const found = ways({ entries: [pod('vetha', ['192.168.0.2']), pod('vethb', ['10.244.1.3', '192.168.0.3'])] })
    assert.deepEqual(found.pods, [{ link: 'vethb', entrance: 'vethb', addresses: ['10.244.1.3'] }])
  })

  it('an uplink that is away takes no part, and one that is a device of the backend too counts once', () => {
    assert.deepEqual(ways({ outer: ['eth0', 'eth0', 'eth9'] }).outer, ['eth0'])
  })
})
