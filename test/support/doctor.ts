// A node with a pod, its faults, and what the doctor says of them.
import assert from 'node:assert/strict'
import { mkdirSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { type Namespace, plugin, until } from './harness.ts'
import { type Agent, type Cluster, fileStore, inCluster, type Node } from './nodes.ts'
import { conforms } from './schemas.ts'

export const DIST = join(import.meta.dir, '../../dist')
const PLUMB = join(DIST, 'plumb')
const NETWORK = { Network: '10.244.0.0/16', EnableIPv6: true, IPv6Network: 'fd00:244::/48', Backend: { Type: 'vxlan' } }
const BRIDGE = { isDefaultGateway: true, hairpinMode: true }
const LATE = 45_000

/** A finding as `plumb doctor --json` has it. */
export interface Finding {
  readonly code: string
  readonly severity: string
  readonly text: string
  readonly commands: readonly string[]
}
/** What `plumb doctor --json` prints. */
export interface Report {
  readonly findings: readonly Finding[]
  readonly hidden: readonly (Finding & { because: string })[]
  readonly made: readonly string[]
  readonly notMade: readonly { readonly code: string; readonly why: string }[]
}
/** A node with an agent and a pod, and another node. */
export interface Fixture {
  readonly node: Node
  readonly other: Node
  readonly hub: Namespace
  readonly agent: Agent
  readonly pod: Namespace
  /** The pod's link on the node. */
  readonly link: string
  readonly containerId: string
  /** The configuration of the plugin flannel in the network. */
  readonly conf: object
  /** The result of the pod's ADD. */
  readonly added: object
  /** The plugins that the network of the node uses. */
  readonly bin: string
  readonly lists: string
}

/** A node with what its runtime reads. */
export interface Place extends Pick<Fixture, 'node' | 'bin' | 'lists'> {
  /** The doctor finds the folders of the runtime itself. */
  readonly isUsual?: true
  /** The program to ask, when it is not plumb itself. */
  readonly plumb?: string
}

/** Makes the folders of a runtime on a node: its plugins, and the network of the agent. */
export function makeNetwork(
  node: Node,
  delegate: object = BRIDGE,
  chained: readonly object[] = [],
): Place & { readonly conf: object } {
  const [bin, lists] = [join(node.dir, 'bin'), join(node.dir, 'net.d')]
  for (const dir of [bin, lists]) mkdirSync(dir, { recursive: true })
  for (const name of ['flannel', 'bridge', 'ptp', 'host-local', 'portmap', 'policy'])
    symlinkSync(join(DIST, name), join(bin, name))
  const conf = {
    type: 'flannel',
    subnetFile: join(node.dir, 'subnet.env'),
    dataDir: join(node.dir, 'flannel'),
    delegate,
  }
  const list = { cniVersion: '1.0.0', name: 'cbr0', plugins: [conf, ...chained] }
  writeFileSync(join(lists, '10-flannel.conflist'), JSON.stringify(list))
  return { node, bin, lists, conf }
}

/** Two nodes with agents, and a pod on the first, in the network that the agent's flannel plugin makes. */
export function withFixture(work: (fixture: Fixture) => Promise<void>, ...more: readonly string[]) {
  return withShape({}, work, ...more)
}

/** The same with another network, or with another plugin for pods. */
export function withShape(
  { network = NETWORK, delegate }: { readonly network?: object; readonly delegate?: object },
  work: (fixture: Fixture) => Promise<void>,
  ...more: readonly string[]
) {
  const options = (cluster: Cluster) => [...fileStore(cluster, network), '--probe-interval=2', ...more]
  return inCluster(3, options, async ({ nodes, hub }, test) => {
    test.timeout(300_000)
    const [node, other, { ns: pod }] = nodes as [Node, Node, Node]
    const [agent, second] = [node.agent(), other.agent()]
    await Promise.all([agent.ready(30_000), second.ready(30_000)])
    await pod.exec(['ip', 'link', 'del', 'eth0'])
    const { bin, lists, conf } = makeNetwork(node, delegate)
    const containerId = `doctor-${node.ns.path.replace(/.*\//, '')}`
    const call = (command: string) =>
      plugin(
        'flannel',
        {
          command,
          conf: { cniVersion: '1.0.0', name: 'cbr0', ...conf },
          containerId,
          netns: pod,
          ifname: 'eth0',
          path: bin,
        },
        node.ns,
      )
    const added = await call('ADD')
    assert.equal(added.status, 0, added.stdout)
    writeCache(node, pod, containerId, added.result)
    const { name: link } = added.result['interfaces'].find((one: { sandbox?: string; name: string }) =>
      one.name.startsWith('veth'),
    )
    await until(async () => (await agent.status())?.peers[0]?.probe?.state === 'answers', LATE)
    try {
      await work({ node, other, hub, agent, pod, link, containerId, added: added.result, conf, bin, lists })
    } finally {
      await call('DEL')
      rmSync(SETTINGS, { force: true })
    }
  })
}

/** The record of an attachment, as libcni keeps it for each runtime. */
export function cacheOf({ dir }: Node, containerId: string): string {
  return join(dir, `cache/results/cbr0-${containerId}-eth0`)
}

function writeCache(node: Node, pod: Namespace, containerId: string, result: object): void {
  mkdirSync(dirname(cacheOf(node, containerId)), { recursive: true })
  const record = { kind: 'cniCacheV1', containerId, ifName: 'eth0', networkName: 'cbr0', netns: pod.path, result }
  writeFileSync(cacheOf(node, containerId), JSON.stringify(record))
}

/** Runs `plumb doctor --json` on the node, as it is set up there. */
export async function doctor(
  { node, bin, lists, isUsual, plumb = PLUMB }: Place,
  ...words: string[]
): Promise<Report & { status: number }> {
  const { status, stdout, stderr } = await node.ns.exec([
    plumb,
    'doctor',
    '--json',
    '--socket',
    join(node.dir, 'agent.sock'),
    '--policy-socket',
    join(node.dir, 'policy.sock'),
    '--subnet-file',
    join(node.dir, 'subnet.env'),
    '--cache-dir',
    join(node.dir, 'cache'),
    ...(isUsual ? [] : ['--conf-dir', lists, '--bin-dir', bin]),
    ...words,
  ])
  // Without root it ends with 2, and still has a report.
  assert.ok(stdout !== '', stderr)
  const report = JSON.parse(stdout) as Report
  conforms('doctor', report)
  return { ...report, status }
}

/** The code of what packets say, which comes with each cause that loses some. */
const LOSS = 'DR58'
/** The findings except what packets say. */
export const causes = ({ findings }: Report) => findings.filter(({ code }) => code !== LOSS)
const codes = (report: Report) => causes(report).map(({ code }) => code)

/** Waits until the doctor finds nothing. `isAlone`: other nodes are objects without a machine, so packets to them are lost. */
export async function isClean(fixture: Place, isAlone = false): Promise<void> {
  let report = await doctor(fixture)
  const left = () => (isAlone ? causes(report) : report.findings)
  await until(async () => {
    report = await doctor(fixture)
    return left().length === 0
  }, LATE).catch(() => assert.deepEqual(left(), []))
  if (isAlone) return
  const isAway = report.notMade.every(({ code, why }) => code === LOSS && / no agent answers$/.test(why))
  assert.equal(report.status, report.notMade.length > 0 && isAway ? 3 : 0, JSON.stringify(report.notMade))
}

/** What commands that mend a node need. */
export type Mended = Place & Pick<Fixture, 'agent'>

/** Runs commands in a shell of root on the node. What they write to some folders goes away with the shell. */
export async function mend(fixture: Mended, commands: readonly string[], isOfMounts = false): Promise<void> {
  const { node } = fixture
  if (isOfMounts) return sh(node.ns, commands.join('\n'))
  const hide = ['/etc/sysctl.d', '/etc/modules-load.d', '/var/tmp'].map((dir) => `mount -t tmpfs none ${dir}`)
  const script = ['set -e', ...hide, `PATH=${agentTools(fixture)}:${DIST}:$PATH`, ...commands].join('\n')
  const { status, stderr } = await node.ns.exec(['unshare', '-m', 'sh', '-c', script])
  assert.equal(status, 0, `${commands.join('\n')}\n${stderr}`)
}

/** Runs a script of a shell that must succeed. */
export const sh = async (ns: Namespace, script: string) => {
  const { status, stderr } = await ns.exec(['sh', '-ec', script])
  assert.equal(status, 0, stderr)
}

/** A fault, and what the doctor says of it. */
export interface Fault {
  readonly code: string
  readonly what: string
  readonly make: (fixture: Fixture) => Promise<unknown> | unknown
  /** The sentence. */
  readonly says: RegExp
  /** The agent would mend it by itself, so it is stopped first. */
  readonly withoutAgent?: true
  readonly severity?: 'error' | 'warning'
  /** Its commands change mounts, which a shell with mounts of its own cannot. */
  readonly isOfMounts?: true
}

/** The finding is there, with its sentence and status, and no other one. Its commands run. */
export async function isFoundAlone(
  fixture: Mended,
  { code, what, says, severity = 'error', isOfMounts }: Fault,
): Promise<void> {
  let report = await doctor(fixture)
  await until(async () => {
    report = await doctor(fixture)
    return causes(report).length > 0
  }, LATE).catch(() => assert.fail(`${code} is not found: ${what}`))
  assert.deepEqual([...new Set(codes(report))], [code], `${what}: ${JSON.stringify(report.findings)}`)
  const [first] = causes(report) as [Finding]
  assert.match(first.text, says)
  assert.equal(first.severity, severity)
  // What is not known is more than a warning.
  const isError = report.findings.some((one) => one.severity === 'error')
  assert.equal(report.status, isError ? 2 : report.notMade.length > 0 ? 3 : 1)
  const alone = await doctor(fixture, code.toLowerCase())
  // Rates differ from one run to the next.
  const steady = ({ findings }: Report) =>
    findings.map((one) => ({ ...one, text: one.text.replace(/\d+ packets/, 'N packets') }))
  assert.deepEqual([steady(alone), alone.made], [steady({ ...report, findings: causes(report) }), [code]])
  const commands = causes(report).flatMap((one) => one.commands)
  await mend(fixture, commands, isOfMounts)
}

/** Writes a script among the tools of the commands that mend. */
export function writeTool({ node }: Place, name: string, ...lines: readonly string[]): void {
  const dir = join(node.dir, 'tools')
  mkdirSync(dir, { recursive: true })
  writeFileSync(join(dir, name), ['#!/bin/sh', ...lines, ''].join('\n'), { mode: 0o755 })
}

const SETTINGS = '/etc/plumb/agent.yaml'

/** Gives the node a file of settings, for commands that change them. The agent gets them when it is started again. */
export function makeSettings(): void {
  mkdirSync(dirname(SETTINGS), { recursive: true })
  writeFileSync(SETTINGS, '# Settings of the agent, see docs/agent.md.\nip-masq: true\n')
}

/**
 * A folder with a `systemctl` that starts and stops the agent of the node, with the settings of its unit. A program of
 * another name has a script of its name there, or nothing happens.
 */
function agentTools({ node, agent }: Mended): string {
  const dir = join(node.dir, 'tools')
  mkdirSync(dir, { recursive: true })
  const noted = join(node.dir, 'pid')
  const script = `#!/bin/sh
if [ "$2" != plumb-agent ]; then
  [ ! -x ${dir}/"$2" ] || exec ${dir}/"$2"
  exit 0
fi
for pid in ${agent.pid} $(cat ${noted} 2>/dev/null); do
  kill $pid 2>/dev/null || true
  while [ -e /proc/$pid/exe ]; do sleep 0.1; done
done
[ "$1" != stop ] || exit 0
[ ! -e ${SETTINGS} ] || config=--config=${SETTINGS}
setsid ${PLUMB} agent ${node.options.join(' ')} $config </dev/null >/dev/null 2>&1 &
echo $! >${noted}
`
  writeFileSync(join(dir, 'systemctl'), script, { mode: 0o755 })
  return dir
}

/** The commands of ufw's own chains, as `ufw enable` makes them, in short. */
export const UFW = `iptables -N ufw-before-input; iptables -N ufw-user-input; iptables -N ufw-user-forward
iptables -A ufw-before-input -i lo -j ACCEPT
iptables -A ufw-before-input -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
iptables -A ufw-before-input -p icmp -j ACCEPT
iptables -A ufw-before-input -j ufw-user-input
iptables -A INPUT -j ufw-before-input; iptables -A FORWARD -j ufw-user-forward`

/** Runs a program in the background of a node until `work` has ended. */
export async function beside(ns: Namespace, argv: readonly string[], work: () => Promise<void>): Promise<void> {
  const child = Bun.spawn(['nsenter', `--net=${ns.path}`, '--', ...argv], { stdio: ['ignore', 'ignore', 'ignore'] })
  try {
    await work()
  } finally {
    child.kill('SIGKILL')
    await child.exited
  }
}

/** The words that start a containerd with the folders of networks and plugins. */
export function containerd({ node, bin }: Place, confDir: string): string[] {
  const dir = join(node.dir, 'containerd')
  mkdirSync(dir, { recursive: true })
  const conf = join(dir, 'config.toml')
  const text = `version = 2
root = "${dir}/root"
state = "${dir}/state"
[grpc]
address = "${dir}/sock"
[plugins."io.containerd.internal.v1.opt"]
path = "${dir}/opt"
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "${bin}"
conf_dir = "${confDir}"
`
  writeFileSync(conf, text)
  return ['/usr/bin/containerd', '--config', conf]
}
