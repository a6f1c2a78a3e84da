import assert from 'node:assert/strict'
import { execa } from 'execa'
import { bridgeEvent, ipEvent, MONITORS } from '../../agent/kernel/events.ts'
import type { Member } from './cluster.ts'
import { until } from './harness.ts'

/** What a test can ask of the monitors. */
export interface Listener {
  /** The lines that the converger did not know of. */
  news(): readonly string[]
  /** Waits until there are more of them than so many. */
  something(before?: number): Promise<void>
  /** Waits until everything that was done before has been heard. */
  caughtUp(): Promise<void>
}

/** Runs work while a member's converger hears what the monitors say on its node, as the agent's does. */
export async function listening(
  member: Member,
  peers: readonly Member[],
  work: (listener: Listener) => Promise<void>,
): Promise<void> {
  const { ns, converger } = member
  const news: string[] = []
  const all: string[] = []
  const children = [
    { argv: MONITORS.ip, read: ipEvent },
    { argv: MONITORS.bridge, read: bridgeEvent },
  ].map(({ argv, read }) => {
    const child = execa('nsenter', [`--net=${ns.path}`, '--', ...argv], {
      stdin: 'ignore',
      buffer: false,
      reject: false,
    })
    const lines = (async () => {
      for await (const line of child.iterable()) {
        all.push(line)
        const event = read(line)
        if (event && converger.note(event) === 0) news.push(line)
      }
    })()
    return { child, lines }
  })
  let serial = 0
  // What was done before a mark has been heard when the mark has.
  async function caughtUp(): Promise<void> {
    const n = ++serial
    const [high, low] = [n >> 8, n & 255]
    const hex = (byte: number) => byte.toString(16).padStart(2, '0')
    const marks = [`127.9.${high}.${low}/32`, `02:ff:ff:ff:${hex(high)}:${hex(low)}`] as const
    await until(async () => {
      await ns.exec(['ip', 'address', 'replace', marks[0], 'dev', 'lo'])
      await ns.exec(['bridge', 'fdb', 'replace', marks[1], 'dev', 'cni0', 'self', 'permanent'])
      return marks.every((mark) => all.some((line) => line.includes(mark)))
    })
  }
  async function something(before = 0): Promise<void> {
    const from = Math.max(0, all.length - 20)
    await until(() => assert.ok(news.length > before, `Nothing new in: ${all.slice(from).join('\n')}`) === undefined)
  }
  try {
    await caughtUp()
    // As the agent does: what happened before they listened is not known.
    converger.invalidate()
    await member.reach(peers)
    await caughtUp()
    news.length = 0
    await work({ news: () => [...news], something, caughtUp })
  } finally {
    for (const { child } of children) child.kill()
    await Promise.all(children.map(({ lines }) => lines))
  }
}
