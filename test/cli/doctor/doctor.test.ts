// lane: long
// Tests agent/doctor and cli/doctor.ts: each fault is made, found alone, and mended by the printed commands.
import assert from 'node:assert/strict'
import { join } from 'node:path'
import { doctor, type Fault, isClean, isFoundAlone, sh, withFixture } from '../../support/doctor.ts'
import { makers } from '../../support/faults.ts'

const FAULTS: readonly Fault[] = [
  {
    code: 'DR1',
    what: 'forwarding is off in both families',
    withoutAgent: true,
    make: ({ node }) => sh(node.ns, 'sysctl -qw net.ipv4.ip_forward=0 net.ipv6.conf.all.forwarding=0'),
    says: /^net\.ipv4\.ip_forward is 0: this node does not route IPv4: its pods reach only this node$/,
  },
  {
    code: 'DR9',
    what: 'a policy of FORWARD drops',
    withoutAgent: true,
    make: ({ node }) =>
      sh(node.ns, 'iptables -D FORWARD -j PLUMB-FORWARD 2>/dev/null || true; iptables -P FORWARD DROP'),
    says: /^The chain ip filter FORWARD, whose policy is drop, of another program drops packets from 10\.244\.\d+\.0\/24 to 10\.244\.0\.0\/16: pods do not reach pods of other nodes$/,
  },
  {
    code: 'DR9',
    what: 'a table of another program drops',
    make: ({ node }) =>
      sh(
        node.ns,
        "nft 'table inet other { chain first { type filter hook forward priority 5; policy drop; ct state established accept; }; }'",
      ),
    says: /^The chain inet other first, whose policy is drop, of another program drops packets/,
  },
  {
    code: 'DR9',
    what: 'a table of another program drops what comes from other nodes',
    make: ({ node }) =>
      sh(
        node.ns,
        "nft 'table inet incoming { chain first { type filter hook forward priority 5; ct state established accept; iifname flannel.1 drop; }; }'",
      ),
    says: /^The chain inet incoming first of another program drops packets from 10\.244\.0\.0\/16 to 10\.244\.\d+\.0\/24: pods of other nodes do not reach pods of this node$/,
  },
  {
    // The agent lets pods pass there, too: rules of its own are no finding.
    code: 'DR12',
    what: 'a rule in the old tables of iptables',
    severity: 'warning',
    make: ({ node }) =>
      sh(node.ns, 'iptables-legacy -P FORWARD DROP; iptables-legacy -A INPUT -s 198.51.100.1 -j DROP'),
    says: /^The old tables of iptables have rules beside those of nftables \(iptables-legacy filter: 1\): both decide, and iptables -S does not show the old ones$/,
  },
  {
    code: 'DR21',
    what: 'another VXLAN device takes our VNI when our device is deleted',
    make: async ({ node, agent }) => {
      process.kill(agent.pid, 'SIGSTOP')
      const made = 'ip link add other up type vxlan id 1 dstport 8472 group 239.1.1.1 dev eth0'
      await sh(node.ns, `ip link del flannel.1; ${made}`).finally(() => process.kill(agent.pid, 'SIGCONT'))
    },
    says: /^The VXLAN device other has the VNI 1 of flannel\.1, at UDP port 8472: the agent cannot make flannel\.1, and pods reach only this node$/,
  },
  {
    code: 'DR28',
    what: 'the bridge has an address of another subnet',
    make: makers.bridgeAddress,
    says: /^The bridge cni0 has the address 10\.99\.0\.1\/24, and the subnet of this node is 10\.244\.\d+\.0\/24: pods fail with "cni0 already has an IP address different from"$/,
  },
  {
    code: 'DR39',
    what: 'another file comes first',
    make: makers.otherNetwork,
    says: /^The runtime takes .*05-other\.conflist \(bridge\), not .*10-flannel\.conflist: it is first by name: new pods are not in the network of this agent$/,
  },
  {
    code: 'DR40',
    what: 'a plugin is not executable',
    make: makers.lockedPlugin,
    says: /bridge is not executable: pods of the network cbr0 do not start/,
  },
  {
    code: 'DR43',
    what: 'the link of a pod is down',
    withoutAgent: true,
    make: makers.podLinkDown,
    says: /^The link veth\w+ is down: eth0 of container doctor-\S+ \(10\.244\.\S+, fd00:244:\S+\) has no network$/,
  },
  {
    // Its command starts the agent.
    code: 'DR25',
    what: 'subnet.env is gone',
    withoutAgent: true,
    make: ({ node }) => sh(node.ns, `rm ${join(node.dir, 'subnet.env')}`),
    says: /^The file .*subnet\.env is missing: pods fail with "open .*subnet\.env: no such file or directory"$/,
  },
]

describe('plumb doctor', () => {
  it(
    'finds nothing on a healthy node, with its agent and without, and makes every check',
    withFixture(async (fixture) => {
      await isClean(fixture)
      const { made, notMade } = await doctor(fixture)
      assert.deepEqual(notMade, [])
      await fixture.agent.stop()
      await isClean(fixture)
      assert.deepEqual((await doctor(fixture)).made, made)
    }),
  )
  for (const isAlone of [false, true]) {
    const faults = FAULTS.filter(({ withoutAgent = false }) => withoutAgent === isAlone)
    it(
      `${isAlone ? 'without the agent' : 'beside the agent'} finds each of ${faults.map(({ code }) => code).join(', ')} alone, and its commands mend it`,
      withFixture(async (fixture) => {
        if (isAlone) await fixture.agent.stop('SIGKILL')
        for (const fault of faults) {
          await fault.make(fixture)
          await isFoundAlone(fixture, fault)
          await isClean(fixture)
        }
      }),
    )
  }
})
