// lane: quick
// Tests agent/services/addresses.ts and conntrack-limits.ts: what a node needs for Services besides Services.
import assert from 'node:assert/strict'
import { addressesOf, type KnownAddresses } from '../../../agent/services/addresses.ts'
import { conntrackSysctls } from '../../../agent/services/conntrack-limits.ts'
import type { ConntrackLimits } from '../../../agent/settings/settings.ts'
import { parseCidr, parseIp } from '../../../lib/text/ip.ts'

const cidrs = (...all: readonly string[]) => all.map(parseCidr)
const KNOWN: KnownAddresses = {
  options: { nodePortAddresses: [], serviceCidrs: [] },
  objects: [],
  pods: cidrs('10.244.0.0/16', 'fd00:244::/48'),
  node: { name: 'n1' },
  uplink: [],
}

describe('networks of ClusterIPs', () => {
  it('that nobody could find out are not known, and not empty', () => {
    const unknown = { ...KNOWN, objects: undefined, trouble: 'the API refuses it' }
    assert.equal(addressesOf(unknown).clusterIPs, undefined)
    assert.match(addressesOf(unknown).problems.join(), /ServiceCIDR objects are not known.*the API refuses it; want/)
    const options = { nodePortAddresses: [], serviceCidrs: cidrs('10.96.0.0/16') }
    assert.deepEqual(addressesOf({ ...unknown, options }), { clusterIPs: ['10.96.0.0/16'], primary: [], problems: [] })
    assert.deepEqual(addressesOf(KNOWN).clusterIPs, [])
  })
})

describe('addresses with NodePorts for primary', () => {
  const options = { nodePortAddresses: 'primary' as const, serviceCidrs: [] }
  it('are those of the link to the other nodes while the Node is not known', () => {
    assert.deepEqual(addressesOf({ ...KNOWN, options, uplink: [parseIp('198.51.100.1')] }).primary, ['198.51.100.1'])
    assert.equal(addressesOf({ ...KNOWN, options }).primary, undefined)
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
