import { shown, ValueError } from '../../lib/text/errors.ts'
import type { Backend } from './backend.ts'
import { BACKENDS } from './types/index.ts'

const FLANNELS = ['udp', 'wireguard', 'ipip', 'ipsec', 'extension', 'tencent-vpc']

/** Opens the backend of a type in lower case, from a file of agent/backend/types. Throws ValueError. */
export async function openBackend(type: string): Promise<Backend> {
  if (FLANNELS.includes(type))
    throw new ValueError(`Cannot use Backend.Type ${shown(type)}: not supported, use vxlan or host-gw`)
  const open = Object.hasOwn(BACKENDS, type) ? BACKENDS[type] : undefined
  if (!open)
    throw new ValueError(`Cannot read Backend.Type ${shown(type)}: want one of ${Object.keys(BACKENDS).join(', ')}`)
  return open()
}
