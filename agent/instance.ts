import { existsSync } from 'node:fs'
import { basename, dirname } from 'node:path'
import type { Link } from '../lib/state/kinds/link.ts'
import type { Cidr, Ip } from '../lib/text/ip.ts'
import { type NetworkName, parse } from '../lib/text/values.ts'
import type { UplinkPreferences } from './backend/uplink.ts'
import { TABLE } from './firewall/masquerade.ts'
import { TUNNELS } from './firewall/tunnels.ts'
import type { Scope } from './kernel/ownership.ts'
import { both } from './lease/families.ts'
import type { Both } from './lease/lease.ts'
import { type NetworkConf, networksOf } from './lease/network-configuration.ts'
import { statePath } from './node/files.ts'
import type { Settings } from './settings/settings.ts'
import type { CheckpointFile } from './store/last-known.ts'
import type { StoreWish } from './store/open.ts'

const SUBNET_FILE = '/run/flannel/subnet.env'

/**
 * The agent's name, unique on this node. It derives from the path of the subnet file. As with flannel, each agent of a
 * node has a separate subnet file.
 */
export function instanceOf({ files }: Settings): NetworkName {
  if (files.subnetEnv === SUBNET_FILE) return parse.network('default')
  return parse.network(`n${Bun.hash.xxHash64(files.subnetEnv).toString(16)}`)
}

/** The name of the agent's nft table. */
export function tableOf(instance: NetworkName): string {
  return instance === 'default' ? TABLE : `${TABLE}_${instance}`
}

/** The name of the nft table that refuses tunnelled packets of strangers. */
export function tunnelsOf(instance: NetworkName): string {
  return instance === 'default' ? TUNNELS : `${TUNNELS}_${instance}`
}

/** The folder of the agent's BIRD, beside its socket. Another agent of the node has another socket, often beside it. */
export function birdDir({ files }: Settings): string {
  const name = basename(files.socket, '.sock')
  return `${dirname(files.socket)}/bird${name === 'agent' ? '' : `-${name}`}`
}

/** The kernel objects that belong to this agent. They include the objects of an earlier network configuration. */
export function scopeOf(
  settings: Settings,
  conf: NetworkConf,
  links: readonly Link['name'][],
  earlier: Both<Cidr> = {},
): Scope {
  const networks = [...networksOf(conf), ...both(earlier)]
  return {
    instance: instanceOf(settings),
    links,
    networks: [...new Set(networks)],
    ...(settings.firewall.replaceFlannel ? { takeOver: true as const } : {}),
  }
}

/** The store that the settings select. It tells `version` to the other nodes, where it can. */
export function storeWish({ store, node }: Pick<Settings, 'store' | 'node'>, version?: string): StoreWish {
  if (store.kind === 'file') {
    const given = !existsSync(`${store.dir}/config`) && existsSync(store.netConf) ? { configFile: store.netConf } : {}
    return { store: 'file', dir: store.dir, ...given }
  }
  if (store.kind === 'kube') {
    const { kubeconfig, server, netConf, annotationPrefix, setCondition } = store
    return {
      store: 'kube',
      node,
      ...(kubeconfig && { kubeconfig }),
      ...(server && { server }),
      configFile: netConf,
      annotationPrefix,
      setCondition,
      ...(version !== undefined && { version }),
    }
  }
  const { endpoints, prefix, tls, user } = store
  return {
    store: 'etcd',
    endpoints,
    prefix,
    ...(tls.authority ? { caFile: tls.authority } : {}),
    ...(tls.certificate ? { certFile: tls.certificate } : {}),
    ...(tls.key ? { keyFile: tls.key } : {}),
    ...(user ? { username: user.name, password: user.password } : {}),
  }
}

/** The file for the agent's last known state of the network, with the node and the store that the state belongs to. */
export function knownPlace(settings: Settings): CheckpointFile {
  const { store, node, files } = settings
  const path = statePath(files.stateDir, 'network', instanceOf(settings))
  return { path, node, store: [store.kind, ...placeOf(store)].join(' ') }
}

function placeOf(store: Settings['store']): readonly string[] {
  if (store.kind === 'etcd') return [...store.endpoints, store.prefix]
  return store.kind === 'kube' ? [store.server ?? store.kubeconfig ?? 'in-cluster'] : [store.dir]
}

/** The uplink settings in the form that `chooseUplink` needs. `inStore` has the store's addresses for this node. */
export function wishOf({ uplink }: Settings, inStore: Both<Ip> = {}): UplinkPreferences {
  const { interfaces, patterns, canReach, tunnel, advertise } = uplink
  return {
    ifaces: interfaces,
    patterns: patterns.map(({ source }) => source),
    ...(canReach ? { canReach } : {}),
    tunnel,
    advertise: { ...uplink.public, ...inStore, ...advertise },
  }
}
