// What `plumb trace --json` says, and a node with pods on a bridge that it looks at.
import assert from 'node:assert/strict'
import { join } from 'node:path'
import type { DroppedReport, TraceReport } from '../../cli/trace.ts'
import { inNamespaces, type Namespace } from './harness.ts'
import { conforms } from './schemas.ts'

type Spaces = Record<'node' | 'a' | 'b' | 'outside', Namespace>

export const PLUMB = join(import.meta.dir, '../../dist/plumb')

/** What a trace said, and its exit status. */
export interface Said extends TraceReport {
  readonly status: number
}

/** Runs `plumb trace --json` on a node. */
export async function traced(node: Namespace, ...words: readonly string[]): Promise<Said> {
  const { status, stdout, stderr } = await node.exec([PLUMB, 'trace', '--json', ...words])
  assert.ok(status !== 2 && stdout !== '', stderr)
  const told = JSON.parse(stdout) as TraceReport
  conforms('trace', told)
  return { ...told, status }
}

/** Starts `plumb trace --json` with `--live` or `--dropped` on a node. It says on stderr when it waits. */
export function waiting(node: Namespace, words: readonly string[]) {
  const argv = ['nsenter', `--net=${node.path}`, '--', PLUMB, 'trace', '--json', ...words]
  return Bun.spawn(argv, { stdout: 'pipe', stderr: 'pipe' })
}

/** Runs `plumb trace --live --json` on a node, and `send` when it waits. */
export async function live(node: Namespace, words: readonly string[], send: () => Promise<unknown>): Promise<Said> {
  const { told, status } = await whileWaiting(node, ['--live', ...words], /^Waiting for a packet from /, send)
  conforms('trace', told)
  return { ...(told as TraceReport), status }
}

/** Runs `plumb trace --dropped --json` on a node, and `send` when it looks. */
export async function dropped(
  node: Namespace,
  words: readonly string[],
  send: () => Promise<unknown>,
): Promise<DroppedReport & { readonly status: number }> {
  const { told, status } = await whileWaiting(node, ['--dropped', ...words], /^Looking for dropped packets for /, send)
  conforms('trace-dropped', told)
  return { ...(told as DroppedReport), status }
}

async function whileWaiting(
  node: Namespace,
  words: readonly string[],
  says: RegExp,
  send: () => Promise<unknown>,
): Promise<{ readonly told: unknown; readonly status: number }> {
  const child = waiting(node, words)
  try {
    const { value } = await child.stderr.getReader().read()
    assert.match(new TextDecoder().decode(value), says)
    await send()
    return { told: JSON.parse(await new Response(child.stdout).text()), status: await child.exited }
  } finally {
    child.kill('SIGKILL')
  }
}

/** The hops as lines, for messages and comparisons: `ok route`, `LOST rules`. */
export function linesOf({ hops }: TraceReport): string[] {
  return hops.map(
    ({ hop, seen, differs }) => `${differs ? 'DIFFERS' : seen ? (seen.passes ? 'ok' : 'LOST') : '-'} ${hop}`,
  )
}

/** The packet is lost at a hop, by the objects and on the wire. */
export function isLostAt(said: Said, hop: string, expected: RegExp, seen: RegExp): void {
  const all = JSON.stringify(said, null, 1)
  const isRefused = /policy|service|receiver/.test(hop)
  assert.deepEqual([said.status, said.lostAt, said.differsAt], [isRefused ? 1 : 3, hop, undefined], all)
  const last = said.hops.at(-1)
  assert.match(last?.expected?.says ?? '', expected)
  assert.match(last?.seen?.says ?? '', seen)
  assert.match(said.conclusion, new RegExp(`^The packet is lost at ${hop}: `))
}

/** The packet arrives, its answer comes back, and both are as they should be. */
export function arrives(said: Said): void {
  const all = JSON.stringify(said, null, 1)
  assert.deepEqual([said.status, said.lostAt, said.differsAt], [0, undefined, undefined], all)
  assert.equal(said.hops.at(-1)?.hop, 'answer', all)
}

/** No trace has left anything in these namespaces, or on the machine. */
export async function isNothingLeft(...spaces: readonly Namespace[]): Promise<void> {
  for (const one of spaces) {
    const { stdout } = await one.exec(['nft', 'list', 'tables'])
    assert.doesNotMatch(stdout, /plumb_trace/)
    assert.equal((await one.exec(['sh', '-c', 'ls /run/plumb/traces 2>/dev/null'])).stdout, '')
  }
}

/**
 * A node with the bridge br0 and pods a and b on it, 10.N.0.2 and 10.N.0.3, both families, and with a link to the
 * outside, 192.0.(N + 1).9. a and b are the namespaces of the pods.
 */
export async function nodeWithPods(
  spaces: Readonly<Record<'node' | 'a' | 'b' | 'outside', Namespace>>,
  n = 1,
): Promise<void> {
  const { node, a, b, outside } = spaces
  for (const ns of [node, a, b, outside]) await sh(ns, 'echo 0 >/proc/sys/net/ipv6/conf/default/accept_dad')
  const lines = [
    'ip link set lo up',
    'sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1 net.bridge.bridge-nf-call-iptables=1',
    'ip link add br0 type bridge',
    `ip addr add 10.${n}.0.1/24 dev br0`,
    `ip addr add fd0${n}::1/64 dev br0 nodad`,
    'ip link set br0 up',
    ...[a, b].map((pod) => `ip link add v${pod.name} master br0 up type veth peer name eth0 netns ${pod.path}`),
    `ip link add up0 type veth peer name eth0 netns ${outside.path}`,
    `ip addr add 192.0.${n + 1}.1/24 dev up0`,
    `ip addr add 2001:db8:${8 + n}::1/64 dev up0 nodad`,
    'ip link set up0 up',
  ]
  await sh(node, lines.join('\n'))
  for (const [pod, last] of [
    [a, 2],
    [b, 3],
  ] as const)
    await sh(
      pod,
      `ip link set lo up; ip addr add 10.${n}.0.${last}/24 dev eth0; ip addr add fd0${n}::${last}/64 dev eth0 nodad; ip link set eth0 up
       ip route add default via 10.${n}.0.1; ip route add default via fd0${n}::1`,
    )
  await sh(
    outside,
    `ip link set lo up; ip addr add 192.0.${n + 1}.9/24 dev eth0; ip addr add 2001:db8:${8 + n}::9/64 dev eth0 nodad; ip link set eth0 up
     ip route add 10.${n}.0.0/24 via 192.0.${n + 1}.1; ip route add fd0${n}::/64 via 2001:db8:${8 + n}::1`,
  )
}

/** Runs a script of a shell that must succeed. */
export async function sh(ns: Namespace, script: string): Promise<void> {
  const { status, stderr } = await ns.exec(['sh', '-ec', script])
  assert.equal(status, 0, stderr)
}

/** A test on the node of `nodeWithPods`. No trace leaves anything there. */
export function onNodeWithPods(work: (spaces: Spaces) => Promise<void>) {
  return inNamespaces(['node', 'a', 'b', 'outside'] as const, async (spaces, test) => {
    test.timeout(60_000)
    await nodeWithPods(spaces)
    await work(spaces)
    await isNothingLeft(...Object.values(spaces))
  })
}

/** A program that listens in a namespace, until it is ended. */
export async function listening(ns: Namespace, script: string): Promise<() => void> {
  const child = Bun.spawn(['nsenter', `--net=${ns.path}`, '--', process.execPath, '-e', script], { stdout: 'pipe' })
  await child.stdout.getReader().read()
  return () => child.kill('SIGKILL')
}
/** Programs for `listening`: of TCP port 80. */
export const TCP =
  "require('node:net').createServer((s) => s.on('error', () => {})).listen(80, '::', () => console.log('ready'))"

/** Loads a map with 50,000 elements that leads addresses of Services to a pod. */
export async function loadElements(node: Namespace, to: string): Promise<void> {
  const elements = Array.from({ length: 50_000 }, (_, i) => `10.96.${i >> 8}.${i & 255} . tcp . 80 : ${to} . 80`)
  const rules = `table inet many {
    map to { type ipv4_addr . inet_proto . inet_service : ipv4_addr . inet_service; elements = { ${elements.join(', ')} } }
    chain nat { type nat hook prerouting priority -101; dnat ip to ip daddr . meta l4proto . th dport map @to; }
  }`
  assert.equal((await node.exec(['nft', '-f', '-'], { stdin: rules })).status, 0)
}
