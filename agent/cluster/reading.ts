import { networkOf } from '../../lib/text/cidr.ts'
import { shown, ValueError } from '../../lib/text/errors.ts'
import { type Cidr, type Ip, parseCidr, parseIp } from '../../lib/text/ip.ts'

// Values that several kinds of objects have in common, and how they are read. `what` is the path of a value for errors.

/** The protocols of a port (core/v1 Protocol). */
export type Protocol = 'TCP' | 'UDP' | 'SCTP'
/** The labels of an object. */
export type Labels = Readonly<Record<string, string>>

/** One requirement of a selector (meta/v1 LabelSelectorRequirement). */
export interface Requirement {
  readonly key: string
  readonly operator: 'In' | 'NotIn' | 'Exists' | 'DoesNotExist'
  readonly values: readonly string[]
}
/** A label selector, as the list of all that it requires. An empty list selects everything. */
export type Selector = readonly Requirement[]
/** Where to: a protocol, with all of its ports, a range of them, or the port of a name. */
export interface Port {
  readonly protocol: Protocol
  readonly from?: number
  readonly to?: number
  readonly name?: string
}

/** Reads a network. Throws ValueError. */
export function cidrOf(value: unknown, what: string): Cidr {
  try {
    return networkOf(parseCidr(value))
  } catch (cause) {
    throw new ValueError(`${what} ${quoted(value)}: want a network such as 10.1.0.0/16`, { cause })
  }
}

/** Reads an address. Throws ValueError. */
export function ipOf(value: unknown, what: string): Ip {
  try {
    return parseIp(value)
  } catch (cause) {
    throw new ValueError(`${what} ${(cause as Error).message}`, { cause })
  }
}

/** What can be read of a list. Notes the rest in `leftOut`, one sentence each. */
export function readableOf<T>(
  all: readonly unknown[],
  what: string,
  read: (one: unknown, what: string) => T,
  leftOut: string[],
): T[] {
  const found = all.flatMap((one, i) => {
    try {
      return read(one, `${what}[${i}]`)
    } catch (cause) {
      if (!(cause instanceof ValueError)) throw cause
      leftOut.push(`${cause.message}; it is left out`)
      return []
    }
  })
  return [...new Set(found)]
}

/** Reads a NetworkPolicyPort. Throws ValueError. */
export function portOf(raw: unknown, what: string): Port {
  const { protocol = 'TCP', port, endPort } = (raw ?? {}) as Record<string, unknown>
  if (!isProtocol(protocol)) throw new ValueError(`${what}.protocol ${quoted(protocol)}: want TCP, UDP or SCTP`)
  if (port === undefined) return { protocol }
  if (typeof port === 'string' && /^[a-z0-9]([-a-z0-9]{0,13}[a-z0-9])?$/.test(port) && endPort === undefined)
    return { protocol, name: port }
  if (!isPort(port))
    throw new ValueError(`${what}.port ${quoted(port)}: want a number from 1 to 65535, or the name of a port`)
  if (endPort !== undefined && (!isPort(endPort) || endPort < port))
    throw new ValueError(`${what}.endPort ${quoted(endPort)}: want a number from ${port} to 65535`)
  return { protocol, from: port, to: endPort ?? port }
}

/** Reads a label selector. Throws ValueError. */
export function selectorOf(raw: unknown, what: string): Selector {
  const { matchLabels, matchExpressions } = (raw ?? {}) as Record<string, unknown>
  const labels = Object.entries(labelsOf(matchLabels, `${what}.matchLabels`)).map(
    ([key, value]): Requirement => ({ key, operator: 'In', values: [value] }),
  )
  const expressions = listOf(matchExpressions ?? [], `${what}.matchExpressions`).map((one, i): Requirement => {
    const { key, operator, values } = (one ?? {}) as Record<string, unknown>
    const at = `${what}.matchExpressions[${i}]`
    if (typeof key !== 'string' || key === '')
      throw new ValueError(`${at}.key ${quoted(key)}: want the name of a label`)
    if (operator !== 'In' && operator !== 'NotIn' && operator !== 'Exists' && operator !== 'DoesNotExist')
      throw new ValueError(`${at}.operator ${quoted(operator)}: want In, NotIn, Exists or DoesNotExist`)
    const given = listOf(values ?? [], `${at}.values`).map((one) => {
      if (typeof one === 'object') throw new ValueError(`${at}.values ${quoted(one)}: want texts`)
      return String(one)
    })
    if ((operator === 'In' || operator === 'NotIn') === (given.length === 0))
      throw new ValueError(`${at}.values: want ${given.length === 0 ? 'at least one' : 'none'} with ${operator}`)
    return { key, operator, values: given }
  })
  return [...labels, ...expressions]
}

/** Reads the metadata of an object. Throws ValueError for a name that the API would not accept. */
export function metaOf(
  raw: unknown,
  kind: string,
): { readonly namespace: string; readonly name: string; readonly labels: Labels } {
  const { name, namespace, labels } = objectAt(raw, 'metadata')
  return {
    name: nameOf(name, `${kind}: metadata.name`),
    namespace:
      namespace === undefined || namespace === '' ? 'default' : nameOf(namespace, `${kind}: metadata.namespace`),
    labels: labelsOf(labels, `${kind} ${quoted(name)}: metadata.labels`),
  }
}

// DNS-1123: such a name can be part of a line of nft.
function nameOf(value: unknown, what: string): string {
  if (typeof value !== 'string' || value.length > 253 || !/^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$/.test(value))
    throw new ValueError(`${what} ${quoted(value)}: want lower-case letters, digits, "-" and ".", 253 at most`)
  return value
}

/**
 * Reads labels. Throws ValueError for a value that is no text, as the API does: without the label a selector would be
 * wider. An empty value of YAML is an empty text.
 */
export function labelsOf(raw: unknown, what: string): Labels {
  const labels = Object.entries((raw ?? {}) as object).map(([key, value]) => {
    if (typeof value === 'string' || value === null) return [key, value ?? '']
    const hint = typeof value === 'object' ? '' : `: ${shown(String(value))}`
    throw new ValueError(`${what}[${shown(key)}] ${quoted(value)}: want a text${hint}`)
  })
  return Object.fromEntries(labels)
}

/** The object below a key. Empty when there is none. */
export function objectAt(raw: unknown, key: string): Readonly<Record<string, unknown>> {
  const found = (raw as Record<string, unknown> | null)?.[key]
  return typeof found === 'object' && found !== null ? (found as Record<string, unknown>) : {}
}

/** Reads a list. Throws ValueError. */
export function listOf(value: unknown, what: string): readonly unknown[] {
  if (!Array.isArray(value)) throw new ValueError(`${what} ${quoted(value)}: want a list`)
  return value
}

/** Whether a value is the name of a protocol. */
export function isProtocol(value: unknown): value is Protocol {
  return value === 'TCP' || value === 'UDP' || value === 'SCTP'
}

/** Whether a value is a port. */
export function isPort(value: unknown): value is number {
  return typeof value === 'number' && Number.isInteger(value) && value >= 1 && value <= 65535
}

/** A value, for a message. */
export function quoted(value: unknown): string {
  return value === undefined ? 'is missing' : shown(value)
}
