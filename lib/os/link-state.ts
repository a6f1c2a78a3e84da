import type { Netns } from '../text/values.ts'
import { inside } from './netns.ts'
import { linkState } from './sockets.ts'

/** Whether a namespace has a link of this name. Asks the kernel directly. True when the kernel refuses to answer. */
export function isLink(name: string, ns: Netns): boolean {
  return inside(ns, () => linkState(name)) !== 'absent'
}

/**
 * Whether a link is up and has its carrier. False from the moment when its removal begins, long before the link is
 * gone. False when there is no such link.
 */
export function isRunning(name: string, ns: Netns): boolean {
  return inside(ns, () => linkState(name)) === 'running'
}
