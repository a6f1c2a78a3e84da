import type { Netns } from '../text/values.ts'
import { inside } from './netns.ts'
import { linkState } from './sockets.ts'

/** Whether a namespace has a link of this name, asked of the kernel itself. True also when it would not say. */
export function isLink(name: string, ns: Netns): boolean {
  return inside(ns, () => linkState(name)) !== 'absent'
}

/** Whether a link is up and works: one that is being removed does not from the first moment, long before it is gone. False also when there is none. */
export function isRunning(name: string, ns: Netns): boolean {
  return inside(ns, () => linkState(name)) === 'running'
}
