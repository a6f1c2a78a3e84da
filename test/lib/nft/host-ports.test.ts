// lane: quick
// Tests plugins/portmap.ts and lib/nft.
import assert from 'node:assert/strict'
import type { Result } from '../../../lib/cni/result.ts'
import { hostPorts, type Mapping, podAddresses, readProtocol, refuseTwice } from '../../../lib/nft/host-ports.ts'
import type { Resource } from '../../../lib/state/resource.ts'
import type { Cidr, Ip } from '../../../lib/text/ip.ts'
import type { Owner } from '../../../lib/text/owner.ts'

const OWNER = { network: 'net', containerId: 'c1', ifname: 'eth0' } as unknown as Owner
const WEB: Mapping = { protocol: 'tcp', hostPort: 8080, containerPort: 80, range: 1 }
const BOTH = ['10.1.0.2/24', 'fd00:1::2/64'] as Cidr[]
const NEEDED = { snat: 'needed', conditions: {} } as const

describe('podAddresses()', () => {
  const interfaces = [
    { name: 'br0' },
    { name: 'eth0', sandbox: '/run/netns/pod' },
    { name: 'eth1', sandbox: '/run/netns/pod' },
    { name: 'eth0' },
  ]
  const cases: Record<string, readonly [readonly object[], readonly string[]]> = {
    'the first of each family': [
      [{ address: '10.0.0.2/24' }, { address: '10.0.0.3/24' }, { address: 'fd00::2/64' }, { address: 'fd00::3/64' }],
      ['10.0.0.2/24', 'fd00::2/64'],
    ],
    'IPv4 first, whatever their order': [
      [{ address: 'fd00::2/64' }, { address: '10.0.0.2/24' }],
      ['10.0.0.2/24', 'fd00::2/64'],
    ],
    'none of a link on the node': [
      [
        { address: '10.0.0.1/24', interface: 0 },
        { address: '10.0.0.2/24', interface: 1 },
      ],
      ['10.0.0.2/24'],
    ],
    'none of a link on the node that has the name of the pod': [
      [
        { address: '10.0.0.1/24', interface: 3 },
        { address: '10.0.0.2/24', interface: 1 },
      ],
      ['10.0.0.2/24'],
    ],
    'none of another link in the pod': [
      [
        { address: '10.0.0.3/24', interface: 2 },
        { address: '10.0.0.2/24', interface: 1 },
      ],
      ['10.0.0.2/24'],
    ],
    'one without interface': [[{ address: '10.0.0.2/24' }], ['10.0.0.2/24']],
    'one whose interface is not in the list, as upstream': [
      [{ address: '10.0.0.2/24', interface: 9 }],
      ['10.0.0.2/24'],
    ],
  }
  for (const [what, [ips, want]] of Object.entries(cases))
    it(`takes ${what}`, () => assert.deepEqual(podAddresses({ interfaces, ips } as unknown as Result, 'eth0'), want))
})

describe('hostPorts()', () => {
  it('puts each claim before what belongs to it', () => {
    const own = hostPorts(OWNER, [WEB, { ...WEB, protocol: 'udp' }], BOTH, NEEDED)
    assert.deepEqual(own.map(name), [
      'local4',
      'local6',
      'claim any4',
      'ports4',
      'snat4',
      'claim any6',
      'ports6',
      'snat6',
      'claim any4',
      'ports4',
      'given',
      'left4',
      'snat4',
      'flows',
      'claim any6',
      'ports6',
      'given',
      'left6',
      'snat6',
      'flows',
    ])
  })
  it('notes an address that is a subnet of its own with the pod, so that DEL takes it away', () => {
    const own = hostPorts(OWNER, [WEB], ['10.1.0.2/32', 'fd00:1::2/128'] as Cidr[], NEEDED)
    assert.deepEqual(own.map(name), [
      'claim any4',
      'ports4',
      'snat4',
      'self4',
      'claim any6',
      'ports6',
      'snat6',
      'self6',
    ])
  })
  it('gives an address of the node its own claim and maps, in its family alone', () => {
    const at = (hostIP: string) =>
      hostPorts(OWNER, [{ ...WEB, hostIP: hostIP as Ip }], BOTH, { ...NEEDED, snat: 'always' }).map(name)
    assert.deepEqual(at('192.0.2.1'), ['local4', 'claim 192.0.2.1', 'ports4at', 'masqall4'])
    assert.deepEqual(at('fd00::1'), ['local6', 'claim fd00::1', 'ports6at', 'masqall6'])
    assert.deepEqual(at('0.0.0.0'), ['local4', 'claim any4', 'ports4', 'masqall4'])
    assert.deepEqual(at('::'), ['local6', 'claim any6', 'ports6', 'masqall6'])
  })
  it('counts a range up on both sides', () => {
    const own = hostPorts(OWNER, [{ ...WEB, range: 3 }], ['10.1.0.2/24' as Cidr], { ...NEEDED, snat: 'never' })
    assert.deepEqual(
      own.flatMap((one) => (one.kind === 'element' ? `${one.key} ${one.value}` : [])),
      ['tcp . 8080 10.1.0.2 . 80', 'tcp . 8081 10.1.0.2 . 81', 'tcp . 8082 10.1.0.2 . 82'],
    )
  })
  it('has the pair of the subnet, which other pods of it have, too, where masquerading may be needed and there is a mapping of the family', () => {
    const pairs = (hostIP: Ip | undefined, snat: 'needed' | 'never') =>
      hostPorts(OWNER, [{ ...WEB, hostIP }], BOTH, { snat, conditions: {} })
        .map(name)
        .filter((one) => one.startsWith('local'))
    assert.deepEqual(
      [pairs(undefined, 'needed'), pairs('0.0.0.0' as Ip, 'needed'), pairs(undefined, 'never')],
      [['local4', 'local6'], ['local4'], []],
    )
  })
})

describe('refuseTwice()', () => {
  it('lets pass what does not meet: other protocols, addresses, families', () => {
    const other = { ...WEB, containerPort: 81 }
    refuseTwice([
      WEB,
      { ...other, protocol: 'udp' },
      { ...other, hostIP: '192.0.2.1' as Ip },
      { ...other, containerPort: 82, hostIP: '192.0.2.2' as Ip },
    ])
    refuseTwice([
      { ...WEB, hostIP: '0.0.0.0' as Ip },
      { ...other, hostIP: '::' as Ip },
    ])
  })
})

describe('readProtocol()', () => {
  it('knows three words, in any case', () =>
    assert.deepEqual(['tcp', 'UDP', 'Sctp', ''].map(readProtocol), ['tcp', 'udp', 'sctp', 'tcp']))
  for (const word of ['icmp', 'tcp6', undefined, null, 6])
    it(`refuses ${String(word)}`, () =>
      assert.throws(() => readProtocol(word), { name: 'ValueError', message: /want tcp, udp or sctp$/ }))
})

function name(one: Resource): string {
  return one.kind === 'claim' ? `claim ${one.ip}` : one.kind === 'element' ? one.set : one.kind
}
