// A sysdump is one archive with all that tells the state of a node, for somebody who cannot look at the node itself.
// Begin here. `collectors.ts` lists what is in it, `redactor.ts` removes secrets, `stand-ins.ts` replaces addresses and
// names.
import { hostname } from 'node:os'
import type { FactSources } from '../../agent/doctor/facts/facts.ts'
import type { Facts } from '../../agent/doctor/facts/index.ts'
import { readProcesses } from '../../agent/doctor/facts/processes.ts'
import { readFacts } from '../../agent/doctor/facts/read.ts'
import { Archive } from './archive.ts'
import { COLLECTORS, type Collector, type Scene } from './collectors.ts'
import { learnSecrets } from './known-secrets.ts'
import { Redactor } from './redactor.ts'
import { type Kind, StandIns } from './stand-ins.ts'

/** What a sysdump is to be like. */
export interface SysdumpOptions {
  readonly places: FactSources
  readonly socket: string
  readonly kubeconfig: string | undefined
  readonly version: string
  /** How far back logs go, in seconds. */
  readonly since: number
  /** Whether addresses and names get stand-ins. */
  readonly isAnonymous: boolean
}
/** A finished sysdump. */
export interface Sysdump {
  /** The name for its file, without an ending. */
  readonly name: string
  readonly bytes: Uint8Array
  /** The number of files, and the names of those that have an error instead. */
  readonly files: number
  readonly failed: readonly string[]
}
interface Collected {
  readonly file: string
  readonly text: string
  readonly failed: boolean
  readonly ms: number
}

/** The largest archive, in bytes. */
const LARGEST = 20_000_000
/** The limit for one collector, in milliseconds. */
const LIMIT_MS = 10_000
/** So many collectors run at a time. The node has other work. */
const WIDTH = 2

/** Collects everything, removes what is secret, and packs it. Changes nothing on the node. Never rejects. */
export async function collect(wish: SysdumpOptions): Promise<Sysdump> {
  const [scene, pids] = sceneOf(wish)
  const redactor = new Redactor()
  learnSecrets(redactor, { argvs: scene.argvs, pids, stateDirs: stateDirsOf(scene.argvs) })
  const collected = await all(COLLECTORS, scene)
  const cleaned = collected.map((one) => ({ ...one, text: redactor.file(one.text) }))
  const standIns = wish.isAnonymous ? standInsOf(collected, scene) : undefined
  const time = Date.now()
  const date = new Date(time).toISOString().replace(/[-:]|\.\d+/g, '')
  const name = ['plumb-sysdump', ...(standIns ? [] : [fileNameOf(scene.node)]), date].join('-')
  const archive = new Archive(name, LARGEST)
  const rows: string[] = []
  const failed: string[] = []
  for (const { file, text, failed: isFailed, ms } of cleaned) {
    const known = redactor.known(text)
    const shown = standIns ? standIns.text(known) : known
    const path = isFailed ? `${file}.error` : file
    const isAdded = archive.add(path, shown, time)
    if (isFailed || !isAdded) failed.push(file)
    rows.push(`${path}  ${isAdded ? `${Buffer.byteLength(shown)} bytes` : 'left out: no room'}, ${Math.round(ms)} ms`)
  }
  const options = `logs of the last ${wish.since} s${standIns ? ', addresses and names replaced' : ''}`
  archive.add(
    'index.txt',
    `plumb ${wish.version}, ${new Date(time).toISOString()}, ${options}\n\n${rows.join('\n')}\n`,
    time,
  )
  return { name, bytes: archive.bytes(), files: rows.length - failed.length, failed }
}

function sceneOf({ places, socket, kubeconfig, version, since }: SysdumpOptions): [Scene, number[]] {
  const agents = agentsOf()
  const argvs = agents.map(({ argv }) => argv)
  let facts: Promise<Facts> | undefined
  const scene: Scene = {
    since,
    socket,
    subnetFile: places.subnetFile,
    confDir: places.confDir,
    node: given(argvs, 'node-name') ?? process.env['NODE_NAME'] ?? hostname(),
    argvs,
    kubeconfig: kubeconfig ?? given(argvs, 'kubeconfig-file'),
    version,
    facts: () => {
      facts ??= readFacts(places)
      return facts
    },
  }
  return [scene, agents.map(({ pid }) => pid)]
}

// Programs of plumb, and flanneld, whose flags the agent takes.
function agentsOf(): { readonly pid: number; readonly argv: readonly string[] }[] {
  try {
    return readProcesses().filter(({ name }) => /^(plumb|flanneld)/.test(name))
  } catch {
    return []
  }
}

/** The value of a flag of the agents. The last one counts, as for the agent. */
function given(argvs: readonly (readonly string[])[], flag: string): string | undefined {
  const values = argvs.flatMap((argv) =>
    argv.flatMap((word, i) => {
      if (word === `--${flag}` || word === `-${flag}`) return argv[i + 1] ?? []
      return new RegExp(`^--?${flag}=(.*)$`, 's').exec(word)?.[1] ?? []
    }),
  )
  return values.at(-1)
}

function stateDirsOf(argvs: readonly (readonly string[])[]): string[] {
  return ['/var/lib/plumb', given(argvs, 'state-dir') ?? []].flat()
}

async function all(collectors: readonly Collector[], scene: Scene): Promise<Collected[]> {
  const results = new Map<Collector, Collected>()
  const begun = performance.now()
  const [now, later] = [collectors.filter(({ delayMs }) => !delayMs), collectors.filter(({ delayMs }) => delayMs)]
  const work = async () => {
    for (let one = now.shift(); one; one = now.shift()) results.set(one, await collected(one, scene))
  }
  const waiting = later.map(async (one) => {
    await Bun.sleep(Math.max(0, (one.delayMs ?? 0) - (performance.now() - begun)))
    results.set(one, await collected(one, scene))
  })
  await Promise.all([...Array.from({ length: WIDTH }, work), ...waiting])
  return collectors.flatMap((one) => results.get(one) ?? [])
}

// A collector that hangs is left alone: nobody waits for its tool, which the signal ends.
async function collected(collector: Collector, scene: Scene): Promise<Collected> {
  const { file } = collector
  const started = performance.now()
  const limit = new AbortController()
  const late = Promise.withResolvers<never>()
  const timer = setTimeout(() => {
    late.reject(new Error(`It did not end within ${LIMIT_MS / 1000} s`))
    limit.abort()
  }, LIMIT_MS)
  try {
    const work = Promise.resolve().then(() => collector.get(scene, limit.signal))
    return { file, text: await Promise.race([work, late.promise]), failed: false, ms: performance.now() - started }
  } catch (cause) {
    return { file, text: `${(cause as Error).message}\n`, failed: true, ms: performance.now() - started }
  } finally {
    clearTimeout(timer)
  }
}

function jsonOf(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}

// The names of this cluster, from what was collected.
function standInsOf(collected: readonly Collected[], { node }: Scene): StandIns {
  const standIns = new StandIns()
  for (const name of [node, hostname()]) standIns.name('node', name)
  for (const { file, text } of collected) {
    const value = jsonOf(text)
    const kind = KINDS_OF_NAMES[file]
    if (Array.isArray(value) && kind) for (const one of value) nameObject(standIns, kind, one)
    if (file === 'plumb/status.json') nameNodes(standIns, value)
    for (const [, namespace = '', pod = ''] of text.matchAll(/^==== \/var\/log\/pods\/([^_/\n]+)_([^_/\n]+)_/gm)) {
      standIns.name('namespace', namespace)
      standIns.name('pod', pod)
    }
    for (const [, key = '', name = ''] of text.matchAll(/K8S_POD_(NAMESPACE|NAME)=([^;"\\\s]+)/g))
      standIns.name(key === 'NAME' ? 'pod' : 'namespace', name)
    for (const [, key = '', name = ''] of text.matchAll(
      /"(namespace|pod|nodeName|host|reportingInstance)": ?"([^"\\]{1,253})"/g,
    ))
      nameOwner(standIns, key, name)
  }
  return standIns
}

const KINDS_OF_NAMES: Readonly<Record<string, Kind>> = {
  'cluster/Node.json': 'node',
  'cluster/Pod.json': 'pod',
  'cluster/Namespace.json': 'namespace',
  'cluster/Service.json': 'service',
}

function nameObject(standIns: StandIns, kind: Kind, object: unknown): void {
  const { name, namespace } = (object as { metadata?: Readonly<Record<string, unknown>> } | null)?.metadata ?? {}
  if (typeof namespace === 'string') standIns.name('namespace', namespace)
  if (typeof name === 'string') standIns.name(kind, name)
}

// Events name the node as `host`. `shop/web` is a pod of the namespace `shop`.
function nameOwner(standIns: StandIns, key: string, name: string): void {
  if (/^(nodeName|host|reportingInstance)$/.test(key) && !/^[\d.:]+$|^localhost$/.test(name))
    standIns.name('node', name)
  const [first = '', second] = name.split('/')
  if (key === 'namespace' || second !== undefined) standIns.name('namespace', first)
  if (key === 'pod') standIns.name('pod', second ?? first)
}

function nameNodes(standIns: StandIns, status: unknown): void {
  const { node, peers } = (status ?? {}) as { node?: unknown; peers?: readonly { node?: unknown }[] }
  for (const name of [node, ...(peers ?? []).map((one) => one.node)])
    if (typeof name === 'string') standIns.name('node', name)
}

function fileNameOf(node: string): string {
  return node
    .replace(/[^\w.-]/g, '_')
    .replace(/^\.+/, '_')
    .slice(0, 63)
}
