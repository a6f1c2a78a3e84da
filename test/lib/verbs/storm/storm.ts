import assert from 'node:assert/strict'
import { mkdtempSync, readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { type Namespace, type Row, snapshot, until } from '../../../support/harness.ts'
import { mappings } from '../../../support/host-ports.ts'
import { settled } from '../../../support/network.ts'
import { generator } from '../../../support/random.ts'
import { random } from '../../../support/seed.ts'
import { call, netns, quiet, type Told } from './calls.ts'
import { type Model, makeModel, type Pod } from './model.ts'

/**
 * How big a storm is: calls of ADD and DEL in all, workers, each with one call at a time, and how many pods each has at
 * most.
 */
export interface Wish {
  readonly calls: number
  readonly workers: number
  readonly slots: number
  readonly seed: number
}
/** What came of it. */
export interface Outcome {
  readonly model: Model
  /** How long each call took that ended well, by plugin and command. */
  readonly ms: ReadonlyMap<string, number[]>
  readonly calls: number
  readonly seconds: number
  /** The most pods that were attached at once. */
  readonly most: number
}

const PORTS = 2000
/** The networks: a bridge with host ports behind it, and another bridge that some pods have as a second link. */
const NETWORKS = [
  { name: 'first', bridge: 'cni0', subnet: '10.1.0.0/16', ifname: 'eth0', isMapped: true },
  { name: 'second', bridge: 'cni1', subnet: '10.2.0.0/16', ifname: 'net1', isMapped: false },
] as const

/**
 * A storm on one node, with ADDs and DELs as it comes, DELs that come twice, again, and without a namespace, and
 * namespaces that vanish before, within and after. What is left attached is compared with the pool and the rules; then
 * all is removed. Throws when something is left.
 */
export async function storm(node: Namespace, wish: Wish): Promise<Outcome> {
  await quiet(node)
  const storming = prepare(node, wish)
  // With all that there is, so that what attachments share is there before.
  const lone = storming.make(() => 0)
  await netns('add', lone.path)
  await storming.add(lone)
  await storming.del(lone)
  const before = [await settled(() => snapshot(node)), files(storming.dir)]
  const began = performance.now()
  const random = generator(wish.seed)
  await Promise.all(Array.from({ length: wish.workers }, () => worker(storming, wish, generator(random() * 2 ** 32))))
  const [seconds, calls] = [(performance.now() - began) / 1000, storming.calls()]
  await compare(node, storming)
  await Promise.all([...storming.attached].map((pod) => storming.del(pod)))
  // Links of namespaces that are gone go a moment later.
  await until(async () => assert.deepEqual([await snapshot(node), files(storming.dir)], before) === undefined, 30_000)
  return { model: storming.model, ms: storming.ms, calls, seconds, most: storming.most() }
}

interface Storming {
  readonly model: Model
  readonly ms: Map<string, number[]>
  readonly dir: string
  readonly attached: Set<Pod>
  calls(): number
  most(): number
  make(random?: () => number): Pod
  /** True when it is attached; when not, what was made was removed again, as a runtime does it. */
  add(pod: Pod): Promise<boolean>
  del(pod: Pod, isForgotten?: boolean): Promise<void>
}

function prepare(node: Namespace, { seed }: Wish): Storming {
  const dir = mkdtempSync('/run/ipam-')
  const model = makeModel()
  const ms = new Map<string, number[]>()
  const attached = new Set<Pod>()
  let [serial, calls, most] = [0, 0, 0]
  const done = async (
    pod: Pod,
    command: 'ADD' | 'DEL',
    conf: Row & { type: string },
    ifname: string,
    path = pod.path,
  ): Promise<Told> => {
    calls++
    return noted(await call(node, command, conf, { id: pod.id, netns: path, ifname }), pod, `${conf.type} ${command}`, {
      model,
      ms,
    })
  }
  const del = async (pod: Pod, isForgotten = false) => {
    attached.delete(pod)
    model.leaves(pod)
    for (const network of networksOf(pod))
      for (const conf of [...confsOf(network, dir, pod)].reverse())
        await done(pod, 'DEL', conf, network.ifname, isForgotten ? '' : pod.path)
  }
  return {
    model,
    ms,
    dir,
    attached,
    calls: () => calls,
    most: () => most,
    make(numbers = random) {
      const pod = makePod(`c${seed}-${++serial}`, numbers)
      model.comes(pod)
      return pod
    },
    async add(pod) {
      for (const network of networksOf(pod)) {
        let prevResult: Row | undefined
        for (const conf of confsOf(network, dir, pod)) {
          const { ok, result } = await done(pod, 'ADD', { ...conf, ...(prevResult && { prevResult }) }, network.ifname)
          if (!ok) return del(pod).then(() => false)
          if (!prevResult)
            model.given(
              pod,
              network.name,
              result['ips'].map(({ address }: Row) => address),
            )
          prevResult = result
        }
        if (network.isMapped) model.mapped(pod)
      }
      most = Math.max(most, attached.add(pod).size)
      return true
    },
    del,
  }
}

function noted(told: Told, pod: Pod, key: string, { model, ms }: Pick<Storming, 'model' | 'ms'>): Told {
  if (told.ok) (ms.get(key) ?? (ms.set(key, []).get(key) as number[])).push(told.ms)
  else model.failed(pod, key, told.error)
  return told
}

function makePod(id: string, random: () => number): Pod {
  const ports =
    random() < 0.5
      ? Array.from({ length: 1 + Math.floor(random() * 2) }, () => 30_000 + Math.floor(random() * PORTS))
      : []
  return { id, path: `/run/netns/${id}`, ports: [...new Set(ports)], isTwice: random() < 0.25, isGone: false }
}

async function worker(storming: Storming, { calls, slots }: Wish, random: () => number): Promise<void> {
  const own: Pod[] = []
  const chance = (part: number) => random() < part
  while (storming.calls() < calls) {
    const at = Math.floor(random() * slots)
    const pod = own[at]
    if (pod) own.splice(at, 1)
    if (pod) await leave(storming, pod, chance)
    else {
      const next = storming.make(random)
      if (await arrive(storming, next, chance, random)) own.push(next)
    }
  }
}

/** ADD; the namespace of some is not there, or goes while it works. */
async function arrive(
  { add, del }: Storming,
  pod: Pod,
  chance: (part: number) => boolean,
  random: () => number,
): Promise<boolean> {
  pod.isGone = chance(0.06)
  if (pod.isGone && chance(0.2)) return add(pod)
  await netns('add', pod.path)
  if (!pod.isGone) return (await add(pod)) || netns('delete', pod.path).then(() => false)
  const [isAttached] = await Promise.all([add(pod), Bun.sleep(random() * 200).then(() => netns('delete', pod.path))])
  if (isAttached) await del(pod)
  return false
}

/** DEL, for some after their namespace, twice at once, once more, or without its name. */
async function leave({ del }: Storming, pod: Pod, chance: (part: number) => boolean): Promise<void> {
  if (chance(0.15)) {
    pod.isGone = true
    await netns('delete', pod.path)
  }
  const isForgotten = chance(0.1)
  await Promise.all([del(pod, isForgotten), ...(chance(0.15) ? [del(pod, isForgotten)] : [])])
  if (chance(0.15)) await del(pod, chance(0.5))
  if (!pod.isGone) await netns('delete', pod.path)
}

/** What pods have, what the pools say, and what the rules lead to, with what plugins answered. */
async function compare(node: Namespace, { model, dir, attached }: Storming): Promise<void> {
  const seen = new Map<string, string[]>(NETWORKS.map(({ ifname }) => [ifname, []]))
  for (const pod of attached) {
    const child = Bun.spawn(['ip', '-n', pod.id, '-j', '-4', 'addr'], { stdout: 'pipe' })
    for (const { ifname, addr_info } of JSON.parse(await child.stdout.text()))
      seen.get(ifname)?.push(...addr_info.map(({ local, prefixlen }: Row) => `${local}/${prefixlen} ${pod.id}`))
  }
  for (const { name, ifname } of NETWORKS) {
    const told = [...model.addresses(name)].map(([address, id]) => `${address} ${id}`).sort()
    assert.deepEqual(seen.get(ifname)?.sort(), told)
    const kept = reservations(join(dir, name)).map(
      (file) => `${file}/16 ${readFileSync(join(dir, name, file), 'utf8').split('\r\n')[0]}`,
    )
    assert.deepEqual(kept.sort(), told)
  }
  const led = (await mappings(node)).map((line) => Number(line.split(' ')[2])).sort()
  assert.deepEqual(led, [...model.ports.keys()].sort())
}

function networksOf({ isTwice }: Pod): readonly (typeof NETWORKS)[number][] {
  return NETWORKS.slice(0, isTwice ? 2 : 1)
}

function confsOf(
  { name, bridge, subnet, isMapped }: (typeof NETWORKS)[number],
  dataDir: string,
  { ports }: Pod,
): (Row & { type: string })[] {
  const common = { cniVersion: '1.0.0', name }
  const portMappings = ports.map((port) => ({ hostPort: port, containerPort: 80, protocol: 'tcp' }))
  return [
    {
      ...common,
      type: 'bridge',
      bridge,
      isGateway: true,
      ipMasq: true,
      ipam: { type: 'host-local', dataDir, ranges: [[{ subnet }]] },
    },
    ...(isMapped ? [{ ...common, type: 'portmap', runtimeConfig: { portMappings } }] : []),
  ]
}

function reservations(dir: string): string[] {
  return readdirSync(dir).filter((name) => !/^(lock|last_reserved_ip\.\d+)$/.test(name))
}

// All names below the pools and below what the plugins note for themselves.
function files(dir: string): string[] {
  return [dir, '/run/cni/plumb'].flatMap((one) => readdirSync(one, { recursive: true }).map(String)).sort()
}
