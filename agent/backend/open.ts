import { shown, ValueError } from '../../lib/text/errors.ts'
import { read, unknownKeys } from '../../lib/text/shape.ts'
import type { NetworkConf } from '../lease/network-configuration.ts'
import type { Backend } from './backend.ts'
import { BACKENDS } from './types/index.ts'

/** What flannel has or had, and plumb has not, with what to use instead. */
const OTHERS: Readonly<Record<string, string>> = {
  ipsec: 'use wireguard',
  'tencent-vpc': "use alloc and the cloud's route controller",
  'ali-vpc': "use alloc and the cloud's route controller",
  'aws-vpc': "use alloc and the cloud's route controller",
  gce: "use alloc and the cloud's route controller",
}

/** Opens the backend of a type in lower case, from a file of agent/backend/types. Throws ValueError. */
export async function openBackend(type: string): Promise<Backend> {
  if (Object.hasOwn(OTHERS, type))
    throw new ValueError(`Cannot use Backend.Type ${shown(type)}: not supported, ${OTHERS[type]}`)
  const open = Object.hasOwn(BACKENDS, type) ? BACKENDS[type] : undefined
  if (!open)
    throw new ValueError(`Cannot read Backend.Type ${shown(type)}: want one of ${Object.keys(BACKENDS).join(', ')}`)
  return open()
}

/**
 * The keys of a network configuration that nothing reads, each as a phrase. flannel passes over such keys, so they are
 * no error.
 */
export function unreadKeys(
  { notes = [], backend: { options } }: NetworkConf,
  { shape }: Pick<Backend, 'shape'>,
): string[] {
  return [...notes.filter((note) => note.startsWith('unknown key')), ...unknownKeys(shape, { Backend: options })]
}

/** `Backend.MTU` of a network configuration. Undefined when it names none. */
export function givenMtu({ backend: { options } }: NetworkConf, { shape }: Pick<Backend, 'shape'>): number | undefined {
  const { MTU }: { readonly MTU?: number } = read(shape, { Backend: options }).value.Backend
  return MTU || undefined
}
