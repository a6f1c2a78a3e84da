import * as v from 'valibot'
import { draftOf, remove, writeAtomic } from '../../lib/os/files.ts'
import { warn } from '../../lib/os/log.ts'
import { readText } from '../../lib/os/reading.ts'
import { field, read } from '../../lib/text/shape.ts'
import { decodeKey, decodeLease, encodeKey, encodeValue, type Lease } from '../lease/lease.ts'
import { runCommand } from './command.ts'

/** The peers for which SubnetAddCommand ran or may have run, and the command that undoes it. */
export interface AddedPeers {
  readonly remove: string
  readonly peers: readonly Lease[]
}

const SHAPE = v.object({
  remove: field.text,
  peers: v.array(v.object({ subnets: field.text, lease: field.text })),
})

/** Reads the file of these peers. Empty when there is none. A file that cannot be read counts as none, with a warning. */
export function readAdded(path: string): AddedPeers {
  const none = { remove: '', peers: [] }
  const text = readText(path)
  if (text === undefined) return none
  try {
    const { remove, peers } = read(SHAPE, JSON.parse(text)).value
    return { remove, peers: peers.map(({ subnets, lease }) => decodeLease(decodeKey(subnets), lease)) }
  } catch (cause) {
    warn(`agent: Cannot use ${path}, going on without: ${(cause as Error).message}`)
    return none
  }
}

/** Writes that file, for root alone, as commands and data may hold secrets. Without peers there is no file. */
export function writeAdded(path: string, { remove: command, peers }: AddedPeers): void {
  if (peers.length === 0) {
    remove(path)
    return
  }
  const rows = peers.map((one) => ({ subnets: encodeKey(one.subnets), lease: encodeValue(one) }))
  const text = `${JSON.stringify({ remove: command, peers: rows })}\n`
  if (readText(path) === text) return
  try {
    writeAtomic(path, text, { mode: 0o600, by: draftOf(path) })
  } catch (cause) {
    throw new Error(`Cannot write ${path}: ${(cause as Error).message}`, { cause })
  }
}

/** The variables that a command gets for a lease. A family that the lease does not have is empty. */
export function variablesOf({ subnets, ips }: Pick<Lease, 'subnets' | 'ips'>): Record<string, string> {
  return {
    SUBNET: subnets.v4 ?? '',
    IPV6SUBNET: subnets.v6 ?? '',
    PUBLIC_IP: ips.v4 ?? '',
    PUBLIC_IPV6: ips.v6 ?? '',
  }
}

/** What SubnetAddCommand and SubnetRemoveCommand read of a lease: the output of that node's PreStartupCommand. */
export function inputOf({ data }: Pick<Lease, 'data'>): string {
  return typeof data.v4 === 'string' ? data.v4 : ''
}

/**
 * Runs the noted command for all of these peers, once each, and removes the file, as another backend is used from now
 * on, or none. Gives a sentence for each command that failed. The end of `signal` ends the command, and the file stays.
 */
export async function removeAll(path: string, signal?: AbortSignal): Promise<string[]> {
  const { remove: command, peers } = readAdded(path)
  const failed: string[] = []
  for (const peer of command === '' ? [] : peers) {
    const { failure } = await runCommand(command, variablesOf(peer), inputOf(peer), { ...(signal && { signal }) })
    signal?.throwIfAborted()
    if (failure !== undefined) failed.push(`Cannot run SubnetRemoveCommand for ${encodeKey(peer.subnets)}: ${failure}`)
  }
  remove(path)
  return failed
}
