import assert from 'node:assert/strict'
import { readdirSync, readFileSync, rmSync } from 'node:fs'
import { basename } from 'node:path'
import {
  type Finished,
  inNamespaces,
  type Namespace,
  plugin,
  type Row,
  standIns,
  until,
} from '../../../support/harness.ts'
import { type Conf, containerId, type Network, network, traces } from '../../../support/network.ts'
import { addresses } from '../../../support/pool.ts'
import { type Files, type Loss, losses, readFiles, writeFiles } from './disk.ts'
import { spread, stand } from './shots.ts'

/**
 * What a power loss may leave as it likes: drafts, locks, and what only says whose turn it is or where to look first.
 */
const HINT = /\/\.[^/]*$|\/draft$|\/lock$|\/last_reserved_ip\.\d+$|\/stamp$|\/freed$|\/\.plumb\//

/** Something whose files are on a disk. */
export interface Machine {
  /** What a power loss does not empty. */
  readonly dirs: readonly string[]
  /** The program, and the verb, whose files are written down. */
  readonly program: string
  readonly verb: string
  /** What comes before it. */
  prepare(nodes: Record<'node' | 'pod' | 'other', Namespace>): Promise<void>
  act(nodes: Record<'node' | 'pod' | 'other', Namespace>): Promise<unknown>
  /** After the boot: throws unless all works, and heals. */
  rise(nodes: Record<'node' | 'pod' | 'other', Namespace>): Promise<void>
}

/**
 * Has a machine lose its power at each moment of what it does, or at some of them (`count`), and start again: how many
 * states there were. Throws Error naming those that were no good.
 */
export async function powerLoss(
  this: Mocha.Context,
  machine: Machine,
  count = Number.POSITIVE_INFINITY,
): Promise<number> {
  const { dirs, program, verb } = machine
  let left: Loss[] = []
  await inNamespaces(['node', 'pod', 'other'], async (nodes) => {
    reboot(dirs, new Map(dirs.map((dir) => [dir, '/'])))
    await machine.prepare(nodes)
    const before = readFiles(dirs)
    const by = stand(program)
    standIns.set(`${program} ${verb}`, by.file)
    await machine.act(nodes).finally(() => standIns.clear())
    const after = readFiles(dirs)
    const { states, whole } = losses(before, by.lines(), dirs)
    left = [...states]
    assert.ok(left.length > 1, `${program} ${verb} wrote nothing`)
    assertSame(left.at(-1) as Loss, after)
    assert.deepEqual(
      left.flatMap((loss) => torn(loss, [before, after], whole)),
      [],
    )
  }).call(this)
  const faults: string[] = []
  for (const { files, when } of spread(left, Math.min(count, left.length))) {
    reboot(dirs, files)
    await inNamespaces(['node', 'pod', 'other'], (nodes) => machine.rise(nodes))
      .call(this)
      .catch((cause: Error) => void faults.push(`${when}: ${cause.message}\n${JSON.stringify([...files], null, 1)}`))
  }
  assert.deepEqual(faults, [], `${faults.length} of ${left.length} states`)
  return left.length
}

/**
 * A network whose pods are gone, and whose reservations may not be: ADD works, no address is given twice, and GC frees
 * those of the pods that are gone.
 */
export async function pods(
  conf: Conf,
  { node, pod, other }: Record<'node' | 'pod' | 'other', Namespace>,
  gone: string,
): Promise<void> {
  const net = network(node, conf)
  const [one, two] = [await quiet(net, pod, node), await quiet(net, other, node)]
  assert.deepEqual(
    one.filter((ip) => two.includes(ip)),
    [],
  )
  for (const ip of [...one, ...two])
    await until(async () => (await node.exec(['ping', '-n', '-q', '-c', '1', '-w', '1', ip])).status === 0)
  await net.del(pod, { containerId: gone, netns: '' })
  await net.gc(pod)
  const dir = `${conf.ipam?.dataDir ?? '/var/lib/cni/networks'}/${conf.name}`
  const reserved = () => readdirSync(dir).filter((name) => /^[\da-f]*[.:][\da-f.:]+$/.test(name))
  assert.deepEqual(reserved().sort(), one.toSorted())
  for (const ip of one) assert.equal(readFileSync(`${dir}/${ip}`, 'utf8'), `${containerId(pod)}\r\neth0`)
  await net.del(pod)
  assert.deepEqual([reserved(), traces(pod, conf), traces(other, conf)], [[], [], []])
}

/** Says at most one line, and no stack. */
export function plain({ stdout, stderr }: Finished): void {
  assert.ok(stderr.trim().split('\n').length <= 1, stderr)
  assert.doesNotMatch(`${stdout}${stderr}`, /\bat \S+:\d+|undefined|\[object/)
}

async function quiet({ conf }: Network, pod: Namespace, node: Namespace): Promise<string[]> {
  const answer = await plugin(
    conf['type'] as string,
    { command: 'ADD', conf, containerId: containerId(pod), netns: pod },
    node,
  )
  assert.equal(answer.status, 0, answer.stdout)
  plain(answer)
  return addresses(answer.result as Row)
}

// /run is in memory.
function reboot(dirs: readonly string[], files: Files): void {
  rmSync('/run/cni', { recursive: true, force: true })
  writeFiles(dirs, files)
}

/** Files that are neither what they were nor what they become. */
function torn({ files, when }: Loss, known: readonly Files[], whole: ReadonlySet<string>): string[] {
  return [...files].flatMap(([path, text]) =>
    HINT.test(path) || text === '/' || whole.has(text) || known.some((one) => one.get(path) === text)
      ? []
      : `${basename(path)} holds ${JSON.stringify(text)}: ${when}`,
  )
}

// What was written down is what happened: else the states are not those of a power loss.
function assertSame({ files }: Loss, after: Files): void {
  const names = (all: Files) => [...all.keys()].filter((path) => !HINT.test(path)).sort()
  assert.deepEqual(names(files), names(after))
}
