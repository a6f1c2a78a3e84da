// lane: quick
// Tests lib/state/kinds: neigh, tunnel, nexthop and route together, as the agent needs all four for a peer.
import assert from 'node:assert/strict'
import { failures } from '../../../../lib/os/iproute2.ts'
import { handler } from '../../../../lib/state/kinds/index.ts'
import type { Resource } from '../../../../lib/state/resource.ts'

const NEIGH = {
  kind: 'neigh',
  ns: 'host',
  dev: 'flannel.1',
  ip: '10.244.2.0',
  mac: '02:00:00:00:00:02',
  proto: 112,
} as Resource

const TUNNEL = { kind: 'tunnel', ns: 'host', dev: 'flannel.1', mac: '02:00:00:00:00:02', dst: '192.0.2.2' } as Resource

const NEXTHOP = {
  kind: 'nexthop',
  ns: 'host',
  id: 7,
  via: '10.244.2.0',
  dev: 'flannel.1',
  onlink: true,
  proto: 112,
} as Resource

const ROUTE = {
  kind: 'route',
  ns: 'host',
  dev: 'flannel.1',
  dst: '10.244.2.0/24',
  via: ['10.244.2.0'],
  onlink: true,
  proto: 112,
  nhid: 7,
} as unknown as Resource

// What iproute2 6.1 prints of these.
const ROWS = {
  neigh: { dst: '10.244.2.0', lladdr: '02:00:00:00:00:02', state: ['PERMANENT'], protocol: '112' },
  tunnel: { mac: '02:00:00:00:00:02', dst: '192.0.2.2', flags: ['self'], state: 'permanent' },
  nexthop: { id: 7, gateway: '10.244.2.0', dev: 'flannel.1', scope: 'link', protocol: '112', flags: ['onlink'] },
}

describe('neigh, tunnel, nexthop and route of the agent', () => {
  it('are made, changed and dropped by these lines', () => {
    assert.equal(
      lines([NEIGH, TUNNEL, NEXTHOP, ROUTE]),
      `
+ neigh replace 10.244.2.0 lladdr 02:00:00:00:00:02 dev flannel.1 nud permanent protocol 112
- neigh replace 10.244.2.0 lladdr 02:00:00:00:00:02 dev flannel.1 nud stale
- neigh delete 10.244.2.0 dev flannel.1
+ fdb replace 02:00:00:00:00:02 dev flannel.1 dst 192.0.2.2 self permanent
- fdb delete 02:00:00:00:00:02 dev flannel.1 self
+ nexthop add id 7 via 10.244.2.0 dev flannel.1 onlink proto 112
~ nexthop replace id 7 via 10.244.2.0 dev flannel.1 onlink proto 112
- nexthop delete id 7
+ route add 10.244.2.0/24 proto 112 nhid 7
~ route replace 10.244.2.0/24 proto 112 nhid 7
- route delete 10.244.2.0/24 proto 112 nhid 7
`,
    )
  })
  it('are content when what is to go is gone, and with nothing else', () => {
    for (const one of [NEIGH, TUNNEL, NEXTHOP, ROUTE]) {
      const { unless } = handler(one.kind).drop(one).at(-1) ?? {}
      const gone = {
        neigh: 'Cannot find device "flannel.1"',
        tunnel: 'RTNETLINK answers: No such file or directory',
        nexthop: 'Error: Nexthop id does not exist.',
        route: 'RTNETLINK answers: No such process',
      }[one.kind as 'neigh']
      assert.match(failures(`${gone}\nCommand failed -:1\n`).byLine.get(1) as string, unless as RegExp)
      assert.doesNotMatch('Operation not permitted', unless as RegExp)
    }
  })
  it('are read back from what iproute2 prints, and not from what differs', () => {
    for (const [one, other] of [
      [NEIGH, { dst: '10.244.3.0' }],
      [TUNNEL, { dst: '192.0.2.9' }],
      [TUNNEL, { state: 'static' }],
      [TUNNEL, { port: 99 }],
      [NEXTHOP, { gateway: '10.244.9.0' }],
      [NEXTHOP, { protocol: 'boot' }],
      [NEXTHOP, { flags: [] }],
    ] as const) {
      const row = ROWS[one.kind as 'neigh']
      assert.deepEqual(handler(one.kind).read(row, one), one)
      assert.equal(handler(one.kind).read({ ...row, ...other }, one), undefined)
    }
    assert.deepEqual(handler('neigh').read({ ...ROWS.neigh, protocol: undefined }, NEIGH), { ...NEIGH, proto: 0 })
  })
})

function lines(resources: readonly Resource[]): string {
  const all = resources.flatMap((one) => {
    const { put, change, drop } = handler(one.kind)
    return [
      ...put(one).map(({ text }) => `+ ${text}`),
      ...(change?.(one, one) ?? []).map(({ text }) => `~ ${text}`),
      ...drop(one).map(({ text }) => `- ${text}`),
    ]
  })
  return `\n${all.join('\n')}\n`
}
