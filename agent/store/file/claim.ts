import { dirname } from 'node:path'
import { remove, writeAtomic } from '../../../lib/os/files.ts'
import { ValueError } from '../../../lib/text/errors.ts'
import { type Both, decodeKey, encodeKey, encodeValue, type Lease } from '../../lease/lease.ts'
import type { NetworkConf } from '../../lease/network-configuration.ts'
import { choose, isAnothers, refuseNamesake, stays } from '../choose.ts'
import type { Draft } from '../store.ts'
import type { Files, NodeRecord, SubnetEntry } from './network.ts'

/**
 * Makes or renews the lease of a node, under the lock of the folder (see SubnetStore.claim). If a kill interrupts the
 * writes, at most a record without a lease remains. The next claim makes that lease.
 */
export function claim(dir: string, files: Files, draft: Draft, conf: NetworkConf, ttlSeconds?: number): Lease {
  const { node, identity, ips, backend, data } = draft
  const record = files.records.get(node)
  const current = record && files.held.find(({ key }) => key === record.subnet)
  refuseNamesake(draft, record, current && holding(current))
  const own = record && [...files.held, ...files.ended].find(({ key }) => key === record.subnet)
  const others = files.held.filter(({ key }) => key !== own?.key)
  const { subnets, over, instead } =
    own && stays(draft, conf, own)
      ? { subnets: own.subnets, over: own }
      : choose<Holding>(draft, conf, others.map(holding), own && holding(own), record && earlier(record))
  const key = encodeKey(subnets)
  const isReserved = over && over !== own ? over.expires === undefined : record?.reserved && own !== undefined
  const expires = ttlSeconds === undefined || isReserved ? undefined : Date.now() + ttlSeconds * 1000
  for (const gone of [...files.ended.filter((one) => one !== own), ...(instead ? [instead] : [])])
    remove(leasePath(dir, gone.key))
  // Removes records of other nodes that name this subnet. Their lease was removed or has ended.
  for (const [other, { subnet }] of files.records) if (other !== node && subnet === key) remove(recordPath(dir, other))
  const wanted: NodeRecord = {
    subnet: key,
    ...(identity !== undefined && { identity }),
    ...(expires !== undefined && { expires }),
    ...(isReserved && { reserved: true }),
  }
  if (JSON.stringify(wanted) !== JSON.stringify(record)) write(recordPath(dir, node), JSON.stringify(wanted))
  const value = encodeValue(draft)
  if (over?.text !== value) write(leasePath(dir, key), value)
  return { node, subnets, ips, backend, data, ...(expires !== undefined && { expires }) }
}

/** Gives the node's lease back and removes its record. A reservation stays, because it does not belong to the node. */
export function release(dir: string, { records }: Files, node: string, identity?: string): void {
  const record = records.get(node)
  if (isAnothers(record, identity)) return
  if (record && !record.reserved && earlier(record)) remove(leasePath(dir, record.subnet))
  remove(recordPath(dir, node))
}

type Holding = SubnetEntry & { readonly ips?: Both<NonNullable<Lease['ips']['v4']>> | undefined }

function holding(held: SubnetEntry): Holding {
  return { ...held, ips: held.lease?.ips }
}

function earlier({ subnet }: NodeRecord): ReturnType<typeof decodeKey> | undefined {
  try {
    return decodeKey(subnet)
  } catch (cause) {
    if (cause instanceof ValueError) return undefined
    throw cause
  }
}

function leasePath(dir: string, key: string): string {
  return `${dir}/subnets/${key}`
}

function recordPath(dir: string, node: string): string {
  return `${dir}/nodes/${node}`
}

function write(path: string, text: string): void {
  // All writers share one draft file, because they hold the lock.
  writeAtomic(path, text, { mode: 0o644, by: `${dirname(path)}/.draft` })
}
