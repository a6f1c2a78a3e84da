import * as v from 'valibot'
import { shown, ValueError } from '../text/errors.ts'
import { field, read } from '../text/shape.ts'
import { parse } from '../text/values.ts'
import type { LeaseFile } from './dhcp.ts'

const byte = field.int(0, 255)
/** The owner of a lease, in questions and files. */
export const owner = v.object({
  network: field.network,
  containerId: field.by(parse.containerId),
  ifname: field.ifname,
})
/** The request for a lease, in questions and files. */
export const wants = v.object({
  families: v.array(v.picklist([4, 6])),
  request: v.array(byte),
  provide: v.array(v.tuple([byte, field.text])),
})
/** The keys of a lease's file. */
export const leaseFile = {
  owner,
  netns: field.by(parse.netns),
  index: field.int(1, 2 ** 31),
  wants,
  release: v.array(v.object({ version: v.picklist([4, 6]), to: field.by(ethernet), packet: field.text })),
  bound: v.unknown(),
}

/** Reads the text of a lease's file. Undefined for a bad text, because a disk or a person may have damaged the file. */
export function readLeaseFile(text: string | undefined): LeaseFile | undefined {
  try {
    return text === undefined ? undefined : read(v.object(leaseFile), JSON.parse(text)).value
  } catch {
    return undefined
  }
}

// Accepts multicast and broadcast addresses, because a client sends its packets to them.
function ethernet(value: unknown): LeaseFile['release'][number]['to'] {
  if (typeof value !== 'string' || !/^([0-9a-f]{2}:){5}[0-9a-f]{2}$/.test(value))
    throw new ValueError(`${shown(value)}: want an Ethernet address`)
  return value as LeaseFile['release'][number]['to']
}
