// Made by `npm run tables` from the files in this folder: do not edit.
import type { Options as EtcdOptions } from './etcd/index.ts'
import type { Options as FileOptions } from './file/index.ts'
import type { Options as KubeOptions } from './kube/index.ts'
import type { SubnetStore } from './store.ts'

/** Which store, and its options. */
export type StoreWish =
  | ({ readonly store: 'etcd' } & EtcdOptions)
  | ({ readonly store: 'file' } & FileOptions)
  | ({ readonly store: 'kube' } & KubeOptions)

/** Opens a store; its libraries are loaded with it. Throws ValueError for options that cannot be used. */
export async function openStore(wish: StoreWish): Promise<SubnetStore> {
  switch (wish.store) {
    case 'etcd':
      return (await import('./etcd/index.ts')).open(wish)
    case 'file':
      return (await import('./file/index.ts')).open(wish)
    case 'kube':
      return (await import('./kube/index.ts')).open(wish)
  }
}
