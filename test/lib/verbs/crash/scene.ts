import assert from 'node:assert/strict'
import { readdirSync } from 'node:fs'
import { join } from 'node:path'
import { execa } from 'execa'
import { type Namespace, plugin, type Row, snapshot, standIns, until } from '../../../support/harness.ts'
import { type Conf, containerId, settled, traces } from '../../../support/network.ts'
import { type Started, type Subject, start } from '../../../support/suites/subject.ts'
import type { Stand } from './shots.ts'

/** A verb of a plugin, as a runtime calls it. */
export type Verb = 'ADD' | 'CHECK' | 'DEL' | 'GC' | 'STATUS'
/** What follows a call that was killed. */
export type Sequel = 'DEL' | 'ADD' | 'GC' | 'DEL without the namespace'
/** A network with `other` attached to it, where one call after another is killed. */
export interface Scene {
  /** Calls a verb for `pod`; what stands in for the plugin takes its place. True when that was killed. */
  shoot(verb: Verb, by: Stand): Promise<boolean>
  /** Makes what a verb wants to find. */
  prepare(verb: Verb): Promise<void>
  /**
   * Goes on, and throws unless that works, and node, pod and disk are as before. `mayBeWhole`: the call had nothing to
   * do with the attachment, or was at its end.
   */
  follow(sequel: Sequel, mayBeWhole: boolean): Promise<void>
}

const PLACES = ['/run/cni', '/var/lib/cni']
/** One for many: written again by the next call, and no reservation. */
const DRAFT = /\/(draft|\.draft|records\.draft)$/
/** Of a pod, besides what `snapshot` looks at; what tuning sets for a whole pod stays (docs/decisions/0015). */
const SYSCTLS = 'grep -s . /proc/sys/net/ipv4/conf/*/arp_filter /proc/sys/net/ipv4/conf/*/arp_notify'

/** Sets the scene. */
export async function setScene(subject: Subject, nodes: Record<'node' | 'pod' | 'other', Namespace>): Promise<Scene> {
  const started = await start(subject, nodes)
  const { net, node } = started
  const now: Now = { pod: started.pod, result: {} }
  const runs = callsOf(subject, started, now)
  // What a network makes once is there.
  for (const verb of ['STATUS', 'ADD', 'CHECK', 'DEL', 'ADD', 'GC'] as const) await runs[verb]()
  now.pod = await anew(now.pod)
  const before = await settled(() => look(node, now.pod, net.conf))
  return {
    async shoot(verb, by) {
      standIns.set(`${subject.type} ${verb}`, by.file)
      try {
        await runs[verb]()
        return false
      } catch (cause) {
        if (by.died()) return true
        throw cause
      } finally {
        standIns.clear()
      }
    },
    async prepare(verb) {
      if (verb !== 'ADD') await runs.ADD()
    },
    async follow(sequel, mayBeWhole) {
      if (sequel === 'ADD') await again(subject, started, now, mayBeWhole)
      else if (sequel === 'DEL without the namespace') {
        await execa('ip', ['netns', 'delete', containerId(now.pod)])
        await net.del(now.pod, { netns: now.pod.path })
      } else await runs[sequel]()
      // A GC has no namespaces to go into: of a pod that lives only the links are its business.
      if (sequel === 'GC')
        assert.deepEqual(
          (await now.pod.json('link')).map(({ ifname }) => ifname),
          ['lo'],
        )
      if (sequel !== 'DEL' && sequel !== 'ADD') now.pod = await anew(now.pod)
      const left = async () => [
        ...changes(before, await look(node, now.pod, net.conf)),
        ...traces(now.pod, net.conf).filter((path) => !DRAFT.test(path)),
      ]
      await until(async () => assert.deepEqual(await left(), []) === undefined, 3000)
    },
  }
}

/** The pod as it is now, and what its last ADD gave. */
interface Now {
  pod: Namespace
  result: Row
}

function callsOf({ type }: Subject, { net, node, other }: Started, now: Now): Record<Verb, () => Promise<unknown>> {
  return {
    async ADD() {
      now.result = {}
      now.result = await net.add(now.pod)
    },
    CHECK: () => net.check(now.pod, now.result),
    DEL: () => net.del(now.pod),
    GC: () => net.gc(other),
    STATUS: async () => assert.equal((await plugin(type, { command: 'STATUS', conf: net.conf }, node)).status, 0),
  }
}

/** The same ADD again: it works, or is refused because the attachment is there, whole. Then DEL. */
async function again(
  subject: Subject,
  { net, node, result: others }: Started,
  { pod, result: before }: Now,
  mayBeWhole: boolean,
): Promise<void> {
  const tried = await net.add(pod).catch((cause: Error) => cause)
  // Called alone, a pool cannot tell an ADD that was killed from one whose caller was: as the reference's it refuses,
  // until there is a DEL.
  if (tried instanceof Error && net.conf['type'] === net.conf.ipam?.['type'] && /duplicate/.test(tried.message))
    return net.del(pod)
  if (tried instanceof Error && !(mayBeWhole && subject.again === 'refused' && /already|duplicate/.test(tried.message)))
    throw tried
  const result = tried instanceof Error ? before : tried
  const works = () => subject.works(pod, result, node, net.conf)
  // Thousands of times on a machine that has more to do: a ping may come too late.
  if (Object.keys(result).length > 0) await works().catch(works)
  const taken = new Set(addressesOf(others))
  // The same of all pods: of loopback, and of static.
  if (!taken.has('127.0.0.1/8') && subject.type !== 'static')
    assert.deepEqual(
      addressesOf(result).filter((one) => taken.has(one)),
      [],
    )
  await net.del(pod)
  // Where a test has set it up, to ask the pod itself.
  if (subject.type !== 'loopback') await pod.ip('link', 'set', 'lo', 'down')
}

function addressesOf({ ips = [] }: Row): string[] {
  return ips.map(({ address }: Row) => address)
}

/** A namespace of the same name and path, whose lo has been up: the kernel gives it an address then, which stays. */
async function anew(pod: Namespace): Promise<Namespace> {
  await execa('ip', ['netns', 'delete', containerId(pod)], { reject: false })
  await execa('ip', ['netns', 'add', containerId(pod)])
  for (const way of ['up', 'down']) await pod.ip('link', 'set', 'lo', way)
  return { ...pod }
}

/** All that there is of a network: on the node, in the pod, on disk. */
async function look(node: Namespace, pod: Namespace, { ipam }: Conf): Promise<string> {
  const [onNode, inPod, shaping, sysctls] = await Promise.all([
    snapshot(node),
    snapshot(pod),
    node.exec(['sh', '-c', 'tc qdisc; tc -s filter show root']),
    pod.exec(['sh', '-c', SYSCTLS]),
  ])
  const dirs = [...PLACES, ...(ipam?.dataDir ? [ipam.dataDir] : [])]
  const files = dirs.flatMap((dir) => names(dir).filter((path) => !DRAFT.test(path)))
  return [
    '--- node',
    onNode,
    shaping.stdout.replace(/qdisc (\w+) \w+:/g, 'qdisc $1'),
    '--- pod',
    inPod,
    sysctls.stdout,
    '--- files',
    ...files,
  ].join('\n')
}

/** The lines that are new, and those that are gone. */
export function changes(before: string, now: string): string[] {
  const [old, fresh] = [before.split('\n'), now.split('\n')]
  return [
    ...fresh.filter((line) => !old.includes(line)).map((line) => `+ ${line}`),
    ...old.filter((line) => !fresh.includes(line)).map((line) => `- ${line}`),
  ]
}

function names(dir: string): string[] {
  try {
    return readdirSync(dir, { recursive: true })
      .map((name) => join(dir, `${name}`))
      .sort()
  } catch {
    return []
  }
}
