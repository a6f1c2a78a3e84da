// Tests agent/doctor and cli/doctor.ts: each fault is made, found alone, and mended by the printed commands.
import assert from 'node:assert/strict'
import { chmodSync, copyFileSync, mkdirSync, readdirSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { type Namespace, plugin, until } from '../support/harness.ts'
import { type Agent, type Cluster, fileStore, inCluster, type Node } from '../support/nodes.ts'

const DIST = join(import.meta.dir, '../../dist')
const PLUMB = join(DIST, 'plumb')
const NETWORK = { Network: '10.244.0.0/16', EnableIPv6: true, IPv6Network: 'fd00:244::/48', Backend: { Type: 'vxlan' } }
const LATE = 20_000

interface Finding {
  readonly code: string
  readonly severity: string
  readonly text: string
  readonly commands: readonly string[]
}
interface Report {
  readonly findings: readonly Finding[]
  readonly hidden: readonly (Finding & { because: string })[]
  readonly made: readonly string[]
  readonly notMade: readonly { readonly code: string; readonly why: string }[]
}
interface Fixture {
  readonly node: Node
  readonly other: Node
  readonly hub: Namespace
  readonly agent: Agent
  readonly pod: Namespace
  /** The pod's link on the node. */
  readonly link: string
  /** The plugins that the network of the node uses. */
  readonly bin: string
  readonly lists: string
}

/** Two nodes with agents, and a pod on the first, in the network that the agent's flannel plugin makes. */
function withFixture(work: (fixture: Fixture) => Promise<void>, ...more: readonly string[]) {
  const options = (cluster: Cluster) => [...fileStore(cluster, NETWORK), '--probe-interval=2', ...more]
  return inCluster(3, options, async ({ nodes, hub }, test) => {
    test.timeout(120_000)
    const [node, other, { ns: pod }] = nodes as [Node, Node, Node]
    const [agent, second] = [node.agent(), other.agent()]
    await Promise.all([agent.ready(30_000), second.ready(30_000)])
    await pod.exec(['ip', 'link', 'del', 'eth0'])
    const [bin, lists] = [join(node.dir, 'bin'), join(node.dir, 'net.d')]
    for (const dir of [bin, lists]) mkdirSync(dir, { recursive: true })
    for (const name of ['flannel', 'bridge', 'host-local']) symlinkSync(join(DIST, name), join(bin, name))
    const conf = {
      type: 'flannel',
      subnetFile: join(node.dir, 'subnet.env'),
      dataDir: join(node.dir, 'flannel'),
      delegate: { isDefaultGateway: true, hairpinMode: true },
    }
    const list = { cniVersion: '1.0.0', name: 'cbr0', plugins: [conf] }
    writeFileSync(join(lists, '10-flannel.conflist'), JSON.stringify(list))
    const call = (command: string) =>
      plugin(
        'flannel',
        {
          command,
          conf: { cniVersion: '1.0.0', name: 'cbr0', ...conf },
          containerId: `doctor-${node.ns.path.replace(/.*\//, '')}`,
          netns: pod,
          ifname: 'eth0',
          path: bin,
        },
        node.ns,
      )
    const added = await call('ADD')
    assert.equal(added.status, 0, added.stdout)
    const { name: link } = added.result['interfaces'].find((one: { sandbox?: string; name: string }) =>
      one.name.startsWith('veth'),
    )
    await until(async () => (await agent.status())?.peers[0]?.probe?.state === 'answers', LATE)
    try {
      await work({ node, other, hub, agent, pod, link, bin, lists })
    } finally {
      await call('DEL')
    }
  })
}

async function doctor({ node, bin, lists }: Fixture, ...words: string[]): Promise<Report & { status: number }> {
  const { status, stdout, stderr } = await node.ns.exec([
    PLUMB,
    'doctor',
    '--json',
    '--socket',
    join(node.dir, 'agent.sock'),
    '--subnet-file',
    join(node.dir, 'subnet.env'),
    '--conf-dir',
    lists,
    '--bin-dir',
    bin,
    ...words,
  ])
  assert.ok(status !== 2, stderr)
  return { ...JSON.parse(stdout), status }
}

const codes = ({ findings }: Report) => findings.map(({ code }) => code)

async function isClean(fixture: Fixture): Promise<void> {
  let report = await doctor(fixture)
  await until(async () => {
    report = await doctor(fixture)
    return report.findings.length === 0
  }, LATE).catch(() => assert.deepEqual(report.findings, []))
  assert.equal(report.status, 0)
}

/** Runs commands in a shell of root on the node. What they write below /etc goes away with the shell. */
async function mend({ node }: Fixture, commands: readonly string[], tools = ''): Promise<void> {
  const hide = ['/etc/sysctl.d', '/etc/modules-load.d'].map((dir) => `mount -t tmpfs none ${dir}`)
  const script = ['set -e', ...hide, `PATH=${tools}:${DIST}:$PATH`, ...commands].join('\n')
  const { status, stderr } = await node.ns.exec(['unshare', '-m', 'sh', '-c', script])
  assert.equal(status, 0, `${commands.join('\n')}\n${stderr}`)
}

const sh = async (ns: Namespace, script: string) => {
  const { status, stderr } = await ns.exec(['sh', '-ec', script])
  assert.equal(status, 0, stderr)
}

interface Fault {
  readonly code: string
  readonly what: string
  readonly make: (fixture: Fixture) => Promise<unknown> | unknown
  /** The sentence. */
  readonly says: RegExp
  /** The agent would mend it by itself, so it is stopped first. */
  readonly withoutAgent?: true
  readonly severity?: 'error' | 'warning'
}

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
    make: ({ node }) => sh(node.ns, 'ip addr add 10.99.0.1/24 dev cni0'),
    says: /^The bridge cni0 has the address 10\.99\.0\.1\/24, and the subnet of this node is 10\.244\.\d+\.0\/24: pods fail with "cni0 already has an IP address different from"$/,
  },
  {
    code: 'DR39',
    what: 'another file comes first',
    make: ({ lists }) =>
      writeFileSync(
        join(lists, '05-other.conflist'),
        JSON.stringify({ cniVersion: '1.0.0', name: 'other', plugins: [{ type: 'bridge' }] }),
      ),
    says: /^The runtime takes .*05-other\.conflist \(bridge\), not .*10-flannel\.conflist: it is first by name: new pods are not in the network of this agent$/,
  },
  {
    code: 'DR40',
    what: 'a plugin is not executable',
    make: async ({ node, bin }) => {
      await sh(node.ns, `rm ${join(bin, 'bridge')}`)
      copyFileSync(join(DIST, 'bridge'), join(bin, 'bridge'))
      chmodSync(join(bin, 'bridge'), 0o644)
    },
    says: /bridge is not executable: pods of the network cbr0 do not start/,
  },
  {
    code: 'DR43',
    what: 'the link of a pod is down',
    withoutAgent: true,
    make: ({ node, link }) => sh(node.ns, `ip link set dev ${link} down`),
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
    '[DG2] finds nothing on a healthy node, with its agent and without, and makes every check',
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
      `[DG1] ${isAlone ? 'without the agent' : 'beside the agent'} finds each of ${faults.map(({ code }) => code).join(', ')} alone, and its commands mend it`,
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

/** The finding is there, with its sentence and status, and no other one. Its commands run. */
async function isFoundAlone(fixture: Fixture, { code, what, says, severity = 'error' }: Fault): Promise<void> {
  let report = await doctor(fixture)
  await until(async () => {
    report = await doctor(fixture)
    return report.findings.length > 0
  }, LATE).catch(() => assert.fail(`${code} is not found: ${what}`))
  assert.deepEqual([...new Set(codes(report))], [code], `${what}: ${JSON.stringify(report.findings)}`)
  const [first] = report.findings as [Finding]
  assert.match(first.text, says)
  assert.equal(first.severity, severity)
  assert.equal(report.status, severity === 'error' ? 1 : 3)
  const alone = await doctor(fixture, code.toLowerCase())
  assert.deepEqual([alone.findings, alone.made], [report.findings, [code]])
  const commands = report.findings.flatMap((one) => one.commands)
  await mend(fixture, commands, agentTools(fixture))
}

/** A folder with a `systemctl` that starts the agent of the node. */
function agentTools({ node }: Fixture): string {
  const dir = join(node.dir, 'tools')
  mkdirSync(dir, { recursive: true })
  const start = `setsid ${PLUMB} agent ${node.options.join(' ')} </dev/null >/dev/null 2>&1 &`
  writeFileSync(join(dir, 'systemctl'), `#!/bin/sh\n${start}\necho $! >${join(node.dir, 'pid')}\n`, { mode: 0o755 })
  assert.ok(readdirSync(dir).length > 0)
  return dir
}
