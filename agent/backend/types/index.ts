// Made by `npm run tables` from the files in this folder: do not edit.
import type { Backend } from '../backend.ts'

/** What loads the backend of a `Backend.Type`. */
export const BACKENDS: Readonly<Record<string, () => Promise<Backend>>> = {
  alloc: async () => (await import('./alloc.ts')).default as Backend,
  extension: async () => (await import('./extension.ts')).default as Backend,
  'host-gw': async () => (await import('./host-gw.ts')).default as Backend,
  ipip: async () => (await import('./ipip.ts')).default as Backend,
  udp: async () => (await import('./udp.ts')).default as Backend,
  vxlan: async () => (await import('./vxlan.ts')).default as Backend,
  wireguard: async () => (await import('./wireguard.ts')).default as Backend,
}
