// Where the screen gets its data: the agent of this node at its socket, or a collector of many agents.

import type { PodSummary } from '../../agent/policy/view.ts'
import { pause } from '../../agent/scheduler/pause.ts'
import type { Happening } from '../../agent/state/happenings.ts'
import { ValueError } from '../../lib/text/errors.ts'
import { unanswered } from '../ask.ts'
import { Collector } from '../fleet/collector.ts'
import type { Fleet } from '../fleet/fleet.ts'
import type { Targets } from '../fleet/target.ts'
import { messages } from '../watch.ts'
import type { Watched } from './draw.ts'
import { watchedFleet } from './fleet-view.ts'
import { afterMessage, type NodeKnown, watchedNode } from './node-view.ts'

/** What `plumb top` watches. */
export interface Source {
  /** Follows it until the signal. Calls `changed` when there is something new. Never throws. */
  follow(changed: () => void, signal: AbortSignal): Promise<void>
  /** What is known now. */
  watched(now: number): Watched
  /** Looks once. Throws ValueError when nobody answers. */
  once(signal: AbortSignal): Promise<Fleet>
}

const [AGAIN_MS, LISTS_MS, WAIT_MS, LOOK_MS] = [1000, 5000, 5000, 50]
/** How often a screen with a fleet is drawn again, in milliseconds, and for which part of a core at most. */
const FLEET_MS = 500
const SHARE = 15

/** Many agents. `list` gives them. */
export function fleetSource(list: (signal: AbortSignal) => Promise<Targets>): Source {
  const collector = new Collector(list)
  return {
    async follow(changed, signal) {
      let seen = -1
      void collector.run(signal)
      while (!signal.aborted) {
        const begun = performance.now()
        if (collector.changes !== seen) {
          seen = collector.changes
          changed()
        }
        await pause(Math.max(FLEET_MS, SHARE * (performance.now() - begun)), signal)
      }
    },
    watched: (now) => watchedFleet(collector.fleet(), now),
    async once(signal) {
      const end = new AbortController()
      void collector.run(AbortSignal.any([signal, end.signal]))
      while (!collector.isComplete && !signal.aborted) await pause(LOOK_MS, signal)
      end.abort()
      return collector.fleet()
    },
  }
}

/** The agent of this node. */
export function nodeSource(socket: string): Source {
  let known: NodeKnown = {}
  const get = async (path: string) => {
    const answer = await fetch(`http://agent${path}`, { unix: socket, signal: AbortSignal.timeout(WAIT_MS) })
    if (!answer.ok) throw new Error(`it answers ${answer.status}: ${(await answer.text()).trim()}`)
    return answer.json()
  }
  const lists = async () => {
    const [pods, log] = await Promise.all([get('/policy'), get('/log')])
    known = { ...known, pods: pods as readonly PodSummary[] | null, log: log as readonly Happening[] }
  }
  return {
    async follow(changed, signal) {
      const streaming = async () => {
        while (!signal.aborted) {
          try {
            for await (const [event, data] of messages(socket, signal)) {
              const state = afterMessage(known.state, event, data)
              const { error: _, ...rest } = known
              known = { ...rest, ...(state && { state }) }
              changed()
            }
            known = { ...known, error: 'the agent has ended the connection' }
          } catch (cause) {
            known = { ...known, error: unanswered(socket, cause as Error).message }
          }
          if (!signal.aborted) changed()
          await pause(AGAIN_MS, signal)
        }
      }
      const listing = async () => {
        while (!signal.aborted) {
          // The stream tells what is wrong with the agent.
          await lists().then(changed, () => {})
          await pause(LISTS_MS, signal)
        }
      }
      await Promise.all([streaming(), listing()])
    },
    watched: (now) => watchedNode(known, now),
    async once(signal) {
      const ask = async (path: string) => {
        const answer = await fetch(`http://agent${path}`, { unix: socket, signal: AbortSignal.timeout(WAIT_MS) })
        return { status: answer.status, body: await answer.text() }
      }
      try {
        await lists()
        for await (const [event, data] of messages(socket, signal)) {
          const state = afterMessage(undefined, event, data)
          if (state) known = { ...known, state }
          break
        }
      } catch (cause) {
        throw unanswered(socket, cause as Error)
      }
      const collector = fleetSource(async () => ({ all: [{ name: socket, ask }] }))
      const fleet = await collector.once(signal)
      const [dead] = fleet.dead
      if (dead) throw new ValueError(`Cannot reach the agent at ${socket}: ${dead.what}`)
      return fleet
    },
  }
}
