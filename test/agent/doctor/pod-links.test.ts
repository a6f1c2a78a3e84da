// lane: quick
// Tests agent/doctor: which links of pods are not as the journal says, and the lines that mend them.
import assert from 'node:assert/strict'
import { checkPodLinks, NOTHING, type PodLinkFacts } from '../../../agent/doctor/pod-links.ts'
import type { Entry } from '../../../lib/journal/journal.ts'
import type { LinkFacts } from '../../../lib/os/links.ts'
import { linesOf } from '../../../lib/state/resource.ts'
import { BRIDGE_ALIAS } from '../../../lib/text/owner.ts'
import { parse } from '../../../lib/text/values.ts'

const SUBNET = '10.244.1.0/24' as PodLinkFacts['subnets'][number]
const veth = { kind: 'link', ns: 'host', name: 'veth1', type: 'veth', up: true }
const bridged = entryOf({
  own: [veth],
  ports: [
    {
      name: 'veth1',
      port: { master: 'cni0', hairpin: true },
      rows: [{ kind: 'vlan', ns: 'host', dev: 'veth1', first: 5, last: 5, pvid: true }],
    },
  ],
})
const routed = entryOf({ own: [veth] }, true)
const bridge = seen({ index: 2, name: parse.ifname('cni0'), kind: 'bridge', alias: BRIDGE_ALIAS, mtu: 1450 })
const port = seen({ index: 3, name: parse.ifname('veth1'), kind: 'veth', master: 2, hairpin: true })

describe('checkPodLinks()', () => {
  it('changes nothing when everything is as the journal says', () => {
    const { changes, mended, lost } = check({ entries: [bridged], links: [bridge, port] })
    assert.deepEqual([changes.flat(), mended, lost], [[], [], []])
  })

  it('makes a deleted bridge as it was, and joins its ports with their VLANs while they are down', () => {
    const { known } = check({ entries: [bridged], links: [bridge, port] })
    const { master: _, ...alone } = port
    const { lines, mended } = check({ entries: [bridged], links: [seen(alone)], known })
    assert.deepEqual(lines, [
      [
        'link add name cni0 address 02:00:00:00:00:09 mtu 1450 up type bridge vlan_filtering 1',
        `link set dev cni0 alias ${BRIDGE_ALIAS}`,
        'addr replace 10.244.1.1/24 brd + dev cni0',
        'link set dev veth1 down',
        'link set dev veth1 master cni0',
        'link set dev veth1 type bridge_slave hairpin on',
      ],
      ['vlan add vid 5 pvid untagged dev veth1'],
      ['link set dev veth1 up'],
    ])
    assert.deepEqual(mended, ['bridge cni0', 'port veth1 of bridge cni0'])
  })

  it('gives a bridge its address, and a bridge and a link that are down their carrier', () => {
    const { known } = check({ entries: [bridged], links: [bridge, port] })
    const down = [bridge, port].map((one) => ({ ...one, isUp: false }))
    const { lines, mended } = check({ entries: [routed], links: down, known, addressesOf: () => [] })
    assert.deepEqual(lines[0]?.slice(0, 3), [
      'addr replace 10.244.1.1/24 brd + dev cni0',
      'link set dev cni0 up',
      'link set dev veth1 up',
    ])
    assert.deepEqual(mended.slice(0, 3), ['address 10.244.1.1/24 of cni0', 'bridge cni0 up', 'link veth1 up'])
  })

  it('gives a routed pod its gateway and its route, instead of another one', () => {
    const { lines, mended } = check({ entries: [routed], links: [seen({ ...port, master: undefined })] })
    assert.deepEqual(lines[0], [
      'addr replace 169.254.1.1/32 dev veth1 scope link',
      'route replace 10.244.1.5/32 scope 0 dev veth1',
    ])
    assert.deepEqual(mended, ['gateway 169.254.1.1 on veth1', 'route to 10.244.1.5'])
  })

  it('leaves a pod of another network, an unfinished call and a pod without its namespace alone', () => {
    for (const more of [
      { entries: [{ ...bridged, unfinished: true as const }] },
      { entries: [{ ...bridged, ips: ['10.9.0.5/24'] }] },
      { entries: [bridged], isThere: () => false },
    ])
      assert.deepEqual(check({ links: [bridge, { ...port, isUp: false }], ...more }).mended, [])
  })

  it('says which pod has lost its link', () => {
    assert.match(check({ entries: [bridged], links: [bridge] }).lost.join(), /^The link veth1 of container c1 is gone/)
  })
})

function check(facts: Partial<PodLinkFacts> & Pick<PodLinkFacts, 'entries' | 'links'>) {
  const found = checkPodLinks({
    addressesOf: () => ['10.244.1.1/24' as PodLinkFacts['subnets'][number]],
    heldBy: () => [],
    towards: () => undefined,
    isThere: () => true,
    known: NOTHING,
    subnets: [SUBNET],
    ...facts,
  })
  return { ...found, lines: found.changes.map((stage) => stage.flatMap(linesOf).map(({ text }) => text)) }
}

function entryOf(link: object, isRouted = false): Entry {
  return {
    owner: { network: 'n', containerId: 'c1', ifname: 'eth0' },
    ips: ['10.244.1.5'],
    parts: { link, ...(isRouted && { routed: { own: [] } }) },
  } as unknown as Entry
}

function seen(facts: Partial<LinkFacts>): LinkFacts {
  const mac = parse.mac('02:00:00:00:00:09')
  const flags = { hairpin: false, isolated: false, locked: false, alias: '', mtu: 1500, master: undefined }
  return { ...flags, mac, isUp: true, ...facts } as LinkFacts
}
