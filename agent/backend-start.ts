// What a backend needs before the parts work: its commands, what the store keeps for it, and what the kernel has.

import { existsSync } from 'node:fs'
import { linksNow } from '../lib/os/links.ts'
import { log, warn } from '../lib/os/log.ts'
import { isOverlay } from '../lib/state/kinds/overlay.ts'
import type { Mac } from '../lib/text/values.ts'
import { shownOutput } from './backend/backend-commands.ts'
import { hasNexthops } from './kernel/nexthops.ts'
import { run } from './kernel/run.ts'
import { encodeValue } from './lease/lease.ts'
import { announceWait, type OpenedBackend, WAIT_MS } from './network.ts'
import { removeAll } from './node/added-peers.ts'
import { runCommand } from './node/command.ts'
import { delays, pause } from './scheduler/pause.ts'
import { type Remembered, StoreError, type SubnetStore } from './store/store.ts'

// What an annotation of a Node may hold, in characters.
const LONGEST_DATA = 4096
// How long to wait after a failed PreStartupCommand, in milliseconds.
const [LEAST_REST_MS, LONGEST_REST_MS] = [1000, 60_000]

/** Runs what is left of the backend extension, when another one has come instead. */
export async function leaveExtension(
  path: string,
  isAllowed: boolean,
  signal: AbortSignal,
  awaiting: (text: string) => void,
): Promise<void> {
  if (!existsSync(path)) return
  const left = `Cannot run the SubnetRemoveCommand in ${path} without --allow-extension; want it once, or delete the file`
  if (isAllowed) awaiting(`SubnetRemoveCommand of the backend extension runs for each peer in ${path}`)
  for (const why of isAllowed ? await removeAll(path, signal) : [left]) warn(`agent: ${why}`)
}

/** Runs the backend's PreStartupCommand until it succeeds. Gives the options with its output. */
export async function runStartCommand(
  { backend, options }: OpenedBackend,
  signal: AbortSignal,
  awaiting: (text: string) => void,
): Promise<unknown> {
  const first = backend.commands?.of(options).PreStartupCommand
  if (!backend.commands || first === undefined) return options
  let announced = ''
  for (const restMs of delays(LEAST_REST_MS, LONGEST_REST_MS)) {
    const { output, failure } = await runCommand(first, {}, '', { signal })
    signal.throwIfAborted()
    log(`agent: ran PreStartupCommand output=${shownOutput(output)}`)
    const { length } = encodeValue({ ips: {}, backend: '', data: { v4: output } })
    const tooLong = length > LONGEST_DATA ? `it wrote more than a lease holds, ${LONGEST_DATA} characters` : undefined
    const why = failure ?? tooLong
    if (why === undefined) return backend.commands.started(options, output)
    announced = announceWait(`Cannot run PreStartupCommand: ${why}; the log has what it wrote`, announced, awaiting)
    await pause(restMs, signal)
    signal.throwIfAborted()
  }
  return options
}

/**
 * The addresses and backend data that the store keeps for this node. Empty when the store does not answer. Existing
 * devices then still keep their MACs, because `existingDevices` reads them from the kernel.
 */
export async function storedOfNode(
  store: SubnetStore,
  signal: AbortSignal,
  awaiting: (text: string) => void,
): Promise<Remembered> {
  for (let announced = ''; ; await pause(WAIT_MS, signal)) {
    signal.throwIfAborted()
    try {
      return (await store.remembered?.(AbortSignal.any([signal, AbortSignal.timeout(WAIT_MS)]))) ?? NOTHING
    } catch (cause) {
      if (!(cause instanceof StoreError)) throw cause
      if (!store.state().connected) return NOTHING
      announced = announceWait(cause.message, announced, awaiting)
    }
  }
}

const NOTHING: Remembered = { addresses: {}, data: {} }

/** Whether the kernel has nexthop objects. Asks until the tools answer. */
export async function nexthops(signal: AbortSignal, awaiting: (text: string) => void): Promise<boolean> {
  for (let announced = ''; ; await pause(WAIT_MS, signal)) {
    signal.throwIfAborted()
    try {
      return await hasNexthops(run)
    } catch (cause) {
      announced = announceWait((cause as Error).message, announced, awaiting)
    }
  }
}

/**
 * The devices of an overlay that already have one of these names, with their MACs. A device of another kind is left out, and
 * the converger reports it.
 */
export function existingDevices(links: readonly string[]): ReadonlyMap<string, Mac> {
  const found = linksNow().filter(({ name, kind }) => isOverlay(kind) && links.includes(name))
  return new Map(found.map(({ name, mac }) => [name, mac]))
}
