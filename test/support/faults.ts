// Faults of a node as people and programs make them, for the tests of the doctor and for the bench.
import { chmodSync, copyFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { DIST, type Fixture, sh } from './doctor.ts'
import { subnetEnv } from './nodes.ts'

/** The prefix of a pod of the other node, which has no pod. */
export function hostOf({ other }: Pick<Fixture, 'other'>): string {
  return (subnetEnv(other)?.['FLANNEL_SUBNET'] ?? '').replace(/\.1\/24$/, '.9/32')
}

const on =
  (script: string) =>
  ({ node }: Fixture) =>
    sh(node.ns, script)

/** What makes each fault. */
export const makers = {
  bridgeAddress: on('ip addr add 10.99.0.1/24 dev cni0'),
  masquerade: on('iptables -t nat -A POSTROUTING -s 10.244.0.0/16 -j MASQUERADE'),
  droppedTunnel: on('iptables -A INPUT -p udp --dport 8472 -j DROP'),
  ruleOfVpn: on('ip route add 10.244.0.0/16 via 172.30.0.254 table 52; ip rule add lookup 52 priority 5270'),
  routeToPod: (fixture: Fixture) => sh(fixture.node.ns, `ip route add ${hostOf(fixture)} dev lo`),
  podLinkDown: ({ node, link }: Fixture) => sh(node.ns, `ip link set dev ${link} down`),
  otherNetwork: ({ lists }: Fixture) =>
    writeFileSync(
      join(lists, '05-other.conflist'),
      JSON.stringify({ cniVersion: '1.0.0', name: 'other', plugins: [{ type: 'bridge' }] }),
    ),
  lockedPlugin({ bin }: Fixture) {
    rmSync(join(bin, 'bridge'))
    copyFileSync(join(DIST, 'bridge'), join(bin, 'bridge'))
    chmodSync(join(bin, 'bridge'), 0o644)
  },
} as const
