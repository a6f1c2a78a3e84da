import assert from 'node:assert/strict'
import { join } from 'node:path'
import { linesOf } from '../../lib/text/lines.ts'
import { inNamespaces, type Namespace, until } from './harness.ts'
import { patient } from './patience.ts'

const STEP = join(import.meta.dir, 'fast-path-step.ts')
const POD = join(import.meta.dir, 'fast-path-pod.ts')
/** The addresses of the pods, IPv4 and IPv6. */
export const ADDRESS = {
  a: '10.244.1.2',
  b: '10.244.1.3',
  c: '10.244.1.4',
  d: '10.244.1.5',
  far: '10.244.2.2',
} as const
export const SIX = {
  a: 'fd00:244:0:1::2',
  b: 'fd00:244:0:1::3',
  c: 'fd00:244:0:1::4',
  d: 'fd00:244:0:1::5',
  far: 'fd00:244:0:2::2',
} as const
/** A pod of the world. */
export type Name = keyof typeof ADDRESS
/** `deep` and `twin` have no links yet. */
const NAMES = ['node', 'a', 'b', 'c', 'd', 'far', 'deep', 'twin'] as const
type Spaces = Readonly<Record<(typeof NAMES)[number], Namespace>>
const ENTRANCE = { a: 'cni0', b: 'cni0', c: 'vc', d: 'vd' } as const

/** What takes part. Pods a and b are ports of a bridge, c and d have links of their own. The other node has no rules. */
export const WAYS = {
  outer: ['eth0'],
  pods: (['a', 'b', 'c', 'd'] as const).map((name) => ({
    link: `v${name}`,
    entrance: ENTRANCE[name],
    addresses: [ADDRESS[name], SIX[name]],
  })),
  unfinished: [],
  bridges: ['cni0'],
  narrow: [] as readonly string[],
  slow: 0,
  isBusy: false,
}

/** An answer of fast-path-step.ts. */
export interface Answer {
  readonly repaired?: readonly string[]
  readonly size?: number
  readonly renewals?: number
  readonly error?: string
}
/** A node with four pods, and another node with one, `far`. */
export interface World {
  readonly node: Namespace
  readonly spaces: Spaces
  ask(question: object): Promise<Answer>
}

/** Runs lines of the shell in a namespace. Rejects when one fails. */
export async function shell(ns: Namespace, ...lines: readonly string[]): Promise<string> {
  const { status, stdout, stderr } = await ns.exec(['sh', '-ec', lines.join('\n')])
  assert.equal(status, 0, `${lines.join('; ')}: ${stderr}`)
  return stdout
}

/** The name of a namespace's file. */
export function fileOf({ path }: Namespace): string {
  return path.slice(path.lastIndexOf('/') + 1)
}

/** Wraps a test: makes the world, and the program that keeps its fast path. */
export function inWorld(work: (world: World) => Promise<void>): (this: Mocha.Context) => Promise<void> {
  return inNamespaces(NAMES, async (spaces, test) => {
    test.timeout(300_000)
    await make(spaces)
    const child = Bun.spawn(['ip', 'netns', 'exec', fileOf(spaces.node), process.execPath, STEP], {
      stdin: 'pipe',
      stdout: 'pipe',
      stderr: 'inherit',
    })
    try {
      const lines = linesOf(child.stdout)
      const next = async () => JSON.parse(((await lines.next()).value as string | undefined) ?? 'null')
      assert.deepEqual(await next(), { why: null })
      const ask = async (question: object) => {
        child.stdin.write(`${JSON.stringify(question)}\n`)
        child.stdin.flush()
        return next()
      }
      await work({ node: spaces.node, spaces, ask })
    } finally {
      child.kill()
    }
  })
}

/** Makes a world before the tests of a `describe`, and ends it after them. All of them share it. */
export function shared<T>(
  wrap: (work: (world: T) => Promise<void>) => (this: Mocha.Context) => Promise<void>,
): () => T {
  let world: T | undefined
  let end = () => {}
  let all: Promise<void> | undefined
  before(async function () {
    this.timeout(300_000)
    await new Promise<void>((resolve, reject) => {
      const ended = new Promise<void>((ends) => {
        end = ends
      })
      const work = async (made: T) => {
        world = made
        resolve()
        await ended
      }
      all = wrap(work).call(this)
      all.catch(reject)
    })
  })
  after(async function () {
    this.timeout(30_000)
    end()
    await all
  })
  return () => world as T
}

/** Gives lines to one `ip` in a namespace: each process takes long in a virtual machine. Rejects when one fails. */
export async function batch(ns: Namespace, ...lines: readonly string[]): Promise<void> {
  await shell(ns, `ip -batch - <<'END'\n${lines.join('\n')}\nEND`)
}

const SETTINGS = 'sysctl -qw net.ipv6.conf.default.accept_dad=0 net.ipv6.conf.all.accept_dad=0'
const ROUTER =
  'net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1 net.ipv4.conf.default.proxy_arp=1 net.ipv4.conf.all.send_redirects=0'
const GATE = { 4: '10.244.1.1', 6: 'fd00:244:0:1::1' } as const

async function make(spaces: Spaces): Promise<void> {
  const { node, far, ...others } = spaces
  await Promise.all(Object.values(others).map((one) => shell(one, SETTINGS)))
  await Promise.all([node, far].map((one) => shell(one, `${SETTINGS} ${ROUTER}`)))
  const own = ['a', 'b', 'c', 'd'] as const
  await batch(node, ...linksOf(spaces))
  await Promise.all([
    ...own.map((name) => batch(spaces[name], ...insideOf(name))),
    batch(
      far,
      'link set lo up',
      'link set eth0 up',
      'addr add 172.30.0.2/24 dev eth0',
      'addr add fd00:30::2/64 dev eth0 nodad',
      `addr add ${ADDRESS.far}/32 dev lo`,
      `addr add ${SIX.far}/128 dev lo nodad`,
      `route add 10.244.1.0/24 via 172.30.0.1 src ${ADDRESS.far}`,
      `route add fd00:244:0:1::/64 via fd00:30::1 src ${SIX.far}`,
    ),
  ])
  await batch(
    node,
    ...own.flatMap((name) => [ADDRESS[name], SIX[name]].map((ip) => `route replace ${ip} dev ${ENTRANCE[name]}`)),
    'route add 10.244.2.0/24 via 172.30.0.2',
    'route add fd00:244:0:2::/64 via fd00:30::2',
  )
}

function linksOf(spaces: Spaces): string[] {
  const pod = (name: keyof typeof ENTRANCE) => {
    const isRouted = ENTRANCE[name] !== 'cni0'
    return [
      `link add v${name} ${isRouted ? '' : 'master cni0'} type veth peer name eth0 netns ${fileOf(spaces[name])}`,
      `link set v${name} up`,
      ...(isRouted ? [`addr add ${GATE[6]}/128 dev v${name} nodad`] : []),
    ]
  }
  return [
    'link set lo up',
    'link add cni0 type bridge',
    `addr add ${GATE[4]}/32 dev cni0`,
    `addr add ${GATE[6]}/128 dev cni0 nodad`,
    'link set cni0 up',
    ...(['a', 'b', 'c', 'd'] as const).flatMap(pod),
    `link add eth0 type veth peer name eth0 netns ${fileOf(spaces.far)}`,
    'addr add 172.30.0.1/24 dev eth0',
    'addr add fd00:30::1/64 dev eth0 nodad',
    'link set eth0 up',
  ]
}

function insideOf(name: keyof typeof ENTRANCE): string[] {
  return [
    `addr add ${ADDRESS[name]}/32 dev eth0`,
    `addr add ${SIX[name]}/128 dev eth0 nodad`,
    'link set eth0 up',
    'link set lo up',
    ...[GATE[4], GATE[6]].flatMap((gate) => [`route add ${gate} dev eth0`, `route add default via ${gate}`]),
  ]
}

/** The process of a pod (fast-path-pod.ts). */
export interface Talker {
  /** Opens a flow. Rejects when it does not open. */
  open(flow: string, ip: string, isTcp: boolean, port?: number): Promise<void>
  /** What comes back on a flow for so many messages of this size, one after another. */
  say(flow: string, size?: number, count?: number): Promise<string[]>
  /** Nobody answers datagrams any more. */
  deaf(): Promise<void>
  kill(): void
}

/** The processes. A test that fails does not come to their end. */
const talkers = new Set<Talker>()
after(() => {
  for (const one of talkers) one.kill()
})
const TIMEOUT_MS = patient(10_000)

/** Starts the process of a pod in a namespace, by the name of its file. */
export async function talker(netns: string, name: string): Promise<Talker> {
  const child = Bun.spawn(['ip', 'netns', 'exec', netns, process.execPath, POD, name], {
    stdin: 'pipe',
    stdout: 'pipe',
    stderr: 'inherit',
  })
  const lines = linesOf(child.stdout)
  const next = async () => ((await lines.next()).value as string | undefined) ?? ''
  const say = async (request: object): Promise<string[]> => {
    child.stdin.write(`${JSON.stringify({ ms: TIMEOUT_MS, ...request })}\n`)
    child.stdin.flush()
    return JSON.parse(await next())
  }
  const made: Talker = {
    open: async (flow, ip, isTcp, port = 82) =>
      assert.deepEqual(await say({ open: flow, ip, port, isTcp }), ['open'], `${flow} to ${ip}`),
    say: (flow, size = 10, count = 1) => say({ say: flow, size, count }),
    deaf: async () => void (await say({ deaf: true })),
    kill: () => child.kill('SIGKILL'),
  }
  talkers.add(made)
  assert.equal(await next(), 'ready')
  return made
}

/** The connections between two addresses that take the fast path of a node, as the tool conntrack prints them. */
export async function inFastPath(node: Namespace, from: string, to: string): Promise<string[]> {
  const family = from.includes(':') ? 'ipv6' : 'ipv4'
  const { stdout } = await node.exec(['conntrack', '-L', '-f', family, '-s', from, '-d', to])
  return stdout.split('\n').filter((line) => line.includes('[OFFLOAD]'))
}

/** Says something on a flow until its connection takes the fast path of a node. */
export async function untilInFastPath(
  { say }: Talker,
  flow: string,
  ...[node, from, to]: Parameters<typeof inFastPath>
): Promise<void> {
  await until(async () => {
    const [answer] = await say(flow)
    const found = await inFastPath(node, from, to)
    if (found.length === 1) return true
    const { stdout } = await node.exec(['conntrack', '-L', '-f', from.includes(':') ? 'ipv6' : 'ipv4', '-s', from])
    throw new Error(`${flow}, ${answer}: ${found.length} in the fast path of\n${stdout}`)
  }, 30_000)
}
