import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { execa } from 'execa'
import { type Finished, until } from '../../support/harness.ts'
import type { Node } from '../../support/nodes.ts'
import { random } from '../../support/seed.ts'
import { act, DEEDS } from './deeds.ts'

const PLUMB = join(import.meta.dir, '../../../dist/plumb')

/** A node keeps so many pods. */
const KEPT = 15
/** An ADD that fails so soon after somebody's deed may have met it. */
const NEAR_MS = 5000
const NETWORK = 'cbr0'

/** What became of a node's pods. */
export interface Count {
  adds: number
  dels: number
  /** ADDs that failed within seconds of a deed by hand, and worked when they came again. */
  met: number
  /** What was not to be. */
  readonly wrong: string[]
  /** How long each ADD and each DEL took. */
  readonly ms: { readonly add: number[]; readonly del: number[] }
}
/** The pods of a node, by the network that its agent installed, as a runtime has them. */
export interface Pods {
  readonly count: Count
  /** One more, and one less when there are enough. */
  turn(): Promise<void>
  /** One of the things that people do by hand to what plugins made. */
  deed(): Promise<void>
  /** A pod's addresses, one each time it is asked. */
  fresh(): Promise<{ readonly path: string; readonly addresses: readonly string[] }>
  /** All of them go. */
  clear(): Promise<void>
}

let serial = 0

/** Makes what manages a node's pods. Its plugins keep their files in the node's folder. */
export function podsOn(node: Node): Pods {
  const count: Count = { adds: 0, dels: 0, met: 0, wrong: [], ms: { add: [], del: [] } }
  const pods: string[] = []
  let lastDeed = Number.NEGATIVE_INFINITY
  const plumb = caller(node, count)
  const remove = async (path: string, isGone: boolean) => {
    if (isGone) await netns('delete', path)
    const { status, stdout, stderr } = await plumb('del', path)
    if (status !== 0) count.wrong.push(`${node.name}: DEL: ${stderr}${stdout}`)
    if (!isGone) await netns('delete', path)
  }
  const add = async (isMapped = false) => {
    const n = ++serial
    const path = `/run/netns/soak${n}`
    await netns('add', path)
    const port = isMapped || n % 3 === 0 ? ['--port-mapping', `${20_000 + (n % 20_000)}:80`] : []
    let done = await plumb('add', path, ...port)
    if (done.status !== 0 && performance.now() - lastDeed < NEAR_MS + (count.ms.add.at(-1) ?? 0)) {
      count.met++
      await plumb('del', path)
      done = await plumb('add', path, ...port)
    }
    if (done.status !== 0) count.wrong.push(`${node.name}: ADD: ${done.stderr}${done.stdout}`)
    return { path, done }
  }
  return {
    count,
    async turn() {
      try {
        pods.push((await add()).path)
        // As a runtime does when a node is busy: the namespace of every fifth one goes first.
        if (pods.length > KEPT)
          await remove(pods.splice(Math.floor(random() * pods.length), 1)[0] as string, serial % 5 === 0)
      } catch (cause) {
        count.wrong.push(String(cause))
      }
    },
    async deed() {
      lastDeed = performance.now()
      await act(node, DEEDS.pods)
      lastDeed = performance.now()
    },
    async fresh() {
      const { path, done } = await add(true)
      return {
        path: pods[pods.push(path) - 1] as string,
        addresses:
          done.status === 0
            ? JSON.parse(done.stdout).ips.map(({ address }: { address: string }) => address.split('/')[0])
            : [],
      }
    },
    async clear() {
      for (const path of pods.splice(0)) await remove(path, false)
    },
  }
}

/**
 * Whether a new pod of one node reaches a new pod of another within ten seconds, by every family: what did not answer.
 */
export async function unreached(one: Pods, two: Pods): Promise<string[]> {
  const [from, to] = [await one.fresh(), await two.fresh()]
  if (to.addresses.length === 0 || from.addresses.length === 0) return ['a pod without an address']
  const lost: string[] = []
  for (const address of to.addresses)
    await until(
      async () =>
        (
          await execa('nsenter', [`--net=${from.path}`, '--', 'ping', '-n', '-q', '-c', '1', '-w', '1', address], {
            reject: false,
          })
        ).exitCode === 0,
      10_000,
    ).catch(() => lost.push(`${from.addresses} to ${address}`))
  return lost
}

// A person who types `plumb cni` on a node: the time is counted.
function caller(node: Node, count: Count) {
  const file = standIn(node)
  return async (verb: 'add' | 'del', path: string, ...more: readonly string[]): Promise<Finished> => {
    const began = performance.now()
    const done = await node.ns.exec([file, 'cni', verb, NETWORK, path, '--json', ...more], {
      env: { NETCONFPATH: join(node.dir, 'net.d'), CNI_PATH: join(node.dir, 'bin') },
    })
    count.ms[verb].push(performance.now() - began)
    count[verb === 'add' ? 'adds' : 'dels']++
    return done
  }
}

// In mounts of its own, so that each node has its /run/cni and its /var/lib/cni.
function standIn({ dir }: Node): string {
  for (const one of ['run-cni', 'lib-cni']) mkdirSync(join(dir, one))
  const inside = `mkdir -p /run/cni /var/lib/cni; mount --bind ${dir}/run-cni /run/cni; mount --bind ${dir}/lib-cni /var/lib/cni; exec ${PLUMB} "$@"`
  writeFileSync(
    join(dir, 'plumb'),
    `#!/bin/sh\nexec unshare --mount --propagation private sh -ec '${inside}' plumb "$@"\n`,
    { mode: 0o755 },
  )
  return join(dir, 'plumb')
}

async function netns(verb: 'add' | 'delete', path: string): Promise<void> {
  await execa('ip', ['netns', verb, path.slice(path.lastIndexOf('/') + 1)])
}
