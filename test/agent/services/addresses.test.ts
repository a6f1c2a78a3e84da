// lane: quick
// Tests agent/services/addresses.ts and conntrack-limits.ts: what a node needs for Services besides Services.
import assert from 'node:assert/strict'
import { serviceCidrOf } from '../../../agent/cluster/services.ts'
import { addressesOf, type KnownAddresses } from '../../../agent/services/addresses.ts'
import { conntrackSysctls } from '../../../agent/services/conntrack-limits.ts'
import type { ConntrackLimits } from '../../../agent/settings/settings.ts'
import { parseCidr, parseIp } from '../../../lib/text/ip.ts'

const cidrs = (...all: readonly string[]) => all.map(parseCidr)
const ips = (...all: readonly string[]) => all.map(parseIp)
const object = (name: string, ...networks: readonly string[]) =>
  serviceCidrOf({ metadata: { name }, spec: { cidrs: networks } })
const KNOWN: KnownAddresses = {
  options: { nodePortAddresses: [], serviceCidrs: [] },
  objects: [],
  pods: cidrs('10.244.0.0/16', 'fd00:244::/48'),
  node: { name: 'n1' },
  uplink: [],
}

describe('networks of ClusterIPs', () => {
  it('are those of all ServiceCIDR objects and of the setting, each once', () => {
    const objects = [object('kubernetes', '10.96.0.1/16', 'fd00:96::/112'), object('more', '10.97.0.0/16')]
    const options = { nodePortAddresses: [], serviceCidrs: cidrs('10.96.0.0/16', '10.98.0.0/16') }
    const { clusterIPs, problems } = addressesOf({ ...KNOWN, objects, options })
    assert.deepEqual(clusterIPs, ['10.96.0.0/16', '10.97.0.0/16', '10.98.0.0/16', 'fd00:96::/112'])
    assert.deepEqual(problems, [])
  })

  it('that nobody could find out are not known, and not empty', () => {
    const unknown = { ...KNOWN, objects: undefined, trouble: 'the API refuses it' }
    assert.equal(addressesOf(unknown).clusterIPs, undefined)
    assert.match(addressesOf(unknown).problems.join(), /ServiceCIDR objects are not known.*the API refuses it; want/)
    const options = { nodePortAddresses: [], serviceCidrs: cidrs('10.96.0.0/16') }
    assert.deepEqual(addressesOf({ ...unknown, options }), { clusterIPs: ['10.96.0.0/16'], primary: [], problems: [] })
    assert.deepEqual(addressesOf(KNOWN).clusterIPs, [])
  })

  for (const wrong of ['10.0.0.0/8', '10.244.3.0/24', 'fd00:244::/64'])
    it(`do not include ${wrong}, where pods are, and the problem is named`, () => {
      const { clusterIPs, problems } = addressesOf({ ...KNOWN, objects: [object('a', wrong, '172.16.0.0/16')] })
      assert.deepEqual(clusterIPs, ['172.16.0.0/16'])
      assert.match(problems.join(), new RegExp(`^The network of ClusterIPs ${wrong} overlaps the network of pods`))
    })
})

describe('addresses with NodePorts for primary', () => {
  const options = { nodePortAddresses: 'primary' as const, serviceCidrs: [] }
  it('are the first one of each family of the Node, without a Node those of the link to the other nodes', () => {
    const node = { name: 'n1', ips: ips('192.0.2.1', '192.0.2.9', '2001:db8::1', '2001:db8::9') }
    const uplink = ips('198.51.100.1')
    assert.deepEqual(addressesOf({ ...KNOWN, options, node, uplink }).primary, ['192.0.2.1', '2001:db8::1'])
    assert.deepEqual(addressesOf({ ...KNOWN, options, uplink }).primary, ['198.51.100.1'])
    const none = addressesOf({ ...KNOWN, options })
    assert.equal(none.primary, undefined)
    assert.match(none.problems.join(), /^No address of Node n1 is known/)
  })
})

describe('limits of connections', () => {
  const usual: ConntrackLimits = {
    maxPerCore: 32_768,
    min: 131_072,
    tcpEstablished: 86_400,
    tcpCloseWait: 3600,
    udp: 0,
    udpStream: 0,
    isTcpLiberal: false,
  }
  const valuesOf = (limits: ConntrackLimits, cores: number) =>
    Object.fromEntries(
      conntrackSysctls(limits, cores).map(({ name, value }) => [name.split('nf_conntrack_')[1], value]),
    )

  it('grow with the processors, and are kube-proxy’s', () => {
    const times = { tcp_timeout_established: 86_400, tcp_timeout_close_wait: 3600 }
    assert.deepEqual(valuesOf(usual, 2), { max: 131_072, buckets: 32_768, ...times })
    assert.deepEqual(valuesOf(usual, 64), { max: 2_097_152, buckets: 524_288, ...times })
  })

  it('of 0 leave what the kernel has', () => {
    assert.deepEqual(valuesOf({ ...usual, maxPerCore: 0, tcpEstablished: 0, tcpCloseWait: 0 }, 64), {})
    const all = { ...usual, maxPerCore: 0, udp: 10, udpStream: 20, isTcpLiberal: true }
    const { udp_timeout, udp_timeout_stream, tcp_be_liberal } = valuesOf(all, 1)
    assert.deepEqual([udp_timeout, udp_timeout_stream, tcp_be_liberal], [10, 20, 1])
  })

  it('lower no number of connections', () => {
    const floors = conntrackSysctls(usual, 2).filter(({ isFloor }) => isFloor)
    assert.deepEqual(
      floors.map(({ name }) => name),
      ['netfilter/nf_conntrack_max', 'netfilter/nf_conntrack_buckets'],
    )
  })
})
