// lane: long
// Tests plugins/ptp.ts with "routed": what every plugin has to pass, calls that are killed included. The packets of
// routed pods are in test/plugins/ptp/routed.test.ts.
import assert from 'node:assert/strict'
import { type Namespace, ping, type Row, until } from '../../support/harness.ts'
import { bridgeConf } from '../../support/network.ts'
import { testPlugin } from '../../support/suites/testPlugin.ts'

testPlugin({
  type: 'ptp',
  conf: () => bridgeConf({ type: 'ptp', bridge: undefined, routed: true, ipMasq: true }, '10.1.0.0/24', 'fd00:1::/64'),
  refused: (conf) => ({ ...conf, routed: 'yes' }),
  again: 'refused',
  prepare: addressed,
  async works(pod, result, node) {
    await addressed(node)
    const addresses: string[] = (result['ips'] ?? [result['ip4'], result['ip6']]).map(
      (ip: Row) => (ip['address'] ?? ip['ip']).split('/')[0],
    )
    assert.equal(addresses.length, 2)
    for (const address of addresses) await until(() => ping(node, address))
    for (const gateway of ['169.254.1.1', 'fe80::1%eth0']) await until(() => ping(pod, gateway))
  },
})

// The gateway is no source of packets, so the node needs addresses of its own.
async function addressed(node: Namespace): Promise<void> {
  await node.ip('link', 'set', 'lo', 'up')
  await node.ip('addr', 'replace', '192.0.2.9/32', 'dev', 'lo')
  await node.ip('addr', 'replace', '2001:db8::9/128', 'dev', 'lo', 'nodad')
}
