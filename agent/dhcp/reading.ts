import * as v from 'valibot'
import { readCommand } from '../../lib/os/answers.ts'
import type { Question } from '../../lib/pools/dhcp.ts'
import { leaseFile, owner, wants } from '../../lib/pools/lease-file.ts'
import { field, read, type Shape } from '../../lib/text/shape.ts'
import { parse } from '../../lib/text/values.ts'
import type { Saved } from './lease.ts'

const verb = field.text
const QUESTIONS: ReadonlyMap<string, v.GenericSchema> = new Map<string, v.GenericSchema>([
  ['add', v.object({ verb, owner, netns: field.by(parse.netns), wants })],
  ['check', v.object({ verb, owner })],
  ['del', v.object({ verb, owner })],
  ['gc', v.object({ verb, network: field.network, keep: v.array(owner) })],
  ['status', v.object({ verb })],
])

/**
 * Validates a question from the socket. The check is strict, because names in the question become file names.
 * Throws CniError 6 for invalid JSON or an unknown verb, and ValueError for any other invalid question.
 */
export function readQuestion(text: string): Question {
  return readCommand('verb', QUESTIONS, text) as Question
}

/** Reads a lease file of the previous daemon. Undefined for a text that is not a valid lease. */
export function readSaved(text: string): Saved | undefined {
  try {
    return read(saved as unknown as Shape<Saved>, JSON.parse(text)).value
  } catch {
    return undefined
  }
}

const time = v.pipe(v.number(), v.finite())
const times = { renewAt: time, rebindAt: time, expiresAt: time }
const bound4 = v.object({
  address: field.cidr,
  server: field.ip,
  via: field.mac,
  options: v.record(v.string(), v.string()),
  ...times,
})
const bound6 = v.object({
  address: field.ip,
  local: field.ip,
  server: field.text,
  nameservers: v.array(field.ip),
  search: v.array(field.text),
  ...times,
})
const saved = v.pipe(
  v.object({
    ...leaseFile,
    mac: field.mac,
    bound: v.object({ 4: v.exactOptional(bound4), 6: v.exactOptional(bound6) }),
    lost: v.exactOptional(field.text),
  }),
  // The file must have a lease for each requested IP version.
  v.check(
    ({ wants: { families }, bound }) =>
      families.length > 0 && families.every((version) => bound[version] !== undefined),
  ),
)
