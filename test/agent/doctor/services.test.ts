// lane: long
// Tests agent/doctor on a node whose agent serves Services and policies.
import assert from 'node:assert/strict'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import {
  doctor,
  type Fault,
  type Fixture,
  isClean,
  isFoundAlone,
  makeSettings,
  sh,
  withFixture,
} from '../../support/doctor.ts'
import { until } from '../../support/harness.ts'
import { KUBE_PROXY } from '../../support/kube-proxy.ts'

const LATE = 45_000
const DIR = mkdtempSync(join(tmpdir(), 'manifests-'))
after(() => rmSync(DIR, { recursive: true, force: true }))
/** Starts an agent that may not set anything below /proc/sys, as a container without the right has it. */
const READ_ONLY = [
  ...['unshare', '--mount', '--propagation', 'private', 'sh', '-ec'],
  'mount --bind /proc/sys /proc/sys; mount -o remount,bind,ro /proc/sys; exec "$0" "$@"',
]

function writePod({ added }: Fixture): void {
  const [ip = ''] = (added as { ips: { address: string }[] }).ips.map(({ address }) => address.split('/')[0])
  const pod = {
    kind: 'Pod',
    metadata: { namespace: 'x', name: 'a' },
    spec: { nodeName: 'n1', containers: [] },
    status: { phase: 'Running', podIPs: [{ ip }] },
  }
  const objects = [pod, { kind: 'Namespace', metadata: { name: 'x' } }]
  writeFileSync(join(DIR, 'pods.yaml'), objects.map((one) => JSON.stringify(one)).join('\n---\n'))
}

async function isFoundAndMended(fixture: Fixture, fault: Fault): Promise<void> {
  await fault.make(fixture)
  await isFoundAlone(fixture, fault)
  await isClean(fixture)
}

describe('plumb doctor beside Services and policies of the agent', () => {
  it(
    'finds nothing beside Services and policies; DR8: finds local ports within those of nodes; DR2: frames of a bridge that skip the rules; DR13: rules of kube-proxy, as iptables has them; DR38: a node without a network',
    withFixture(
      async (fixture) => {
        const { node, lists } = fixture
        writePod(fixture)
        makeSettings()
        await isClean(fixture)
        assert.deepEqual((await doctor(fixture)).notMade, [])
        await isFoundAndMended(fixture, {
          code: 'DR8',
          severity: 'warning',
          what: 'a longer range of local ports',
          make: () => sh(node.ns, "sysctl -qw net.ipv4.ip_local_port_range='20000 60999'"),
          says: /^net\.ipv4\.ip_local_port_range is 20000 60999, and node ports are 30000-32767: a program of the node may take the port of a Service for its own connection$/,
        })
        await fixture.agent.stop()
        const agent = node.agentBy(READ_ONLY)
        await until(async () => (await agent.status())?.ready, LATE)
        await isFoundAndMended(
          { ...fixture, agent },
          {
            code: 'DR2',
            what: 'one of the two settings is 0',
            make: () => sh(node.ns, 'sysctl -qw net.bridge.bridge-nf-call-iptables=0'),
            says: /^net\.bridge\.bridge-nf-call-iptables is 0: packets between two pods of bridge cni0 skip policy and Services$/,
          },
        )
        await isFoundAndMended(
          { ...fixture, agent },
          {
            code: 'DR13',
            what: 'rules of kube-proxy in iptables',
            make: () => sh(node.ns, `iptables-restore --noflush <<'END'\n${KUBE_PROXY}END`),
            says: /^kube-proxy left the chain ip nat KUBE-SERVICES, and the agent serves Services: a Service is answered by either of them; end kube-proxy, and the agent removes what it left$/,
          },
        )
        const { stdout } = await node.ns.exec(['iptables-save'])
        assert.doesNotMatch(stdout, /KUBE-/)
        await isFoundAndMended(
          { ...fixture, agent },
          {
            code: 'DR38',
            what: 'the only network is gone',
            make: () => rmSync(join(lists, '10-flannel.conflist')),
            says: /^There is no \*\.conflist, \*\.conf or \*\.json file in \S+: the node says "cni config uninitialized" and starts no pod$/,
          },
        )
      },
      `--network-policy=${DIR}`,
      `--service-proxy=${DIR}`,
    ),
  )
})
