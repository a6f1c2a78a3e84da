// The node beside the kernel: its files, its plugins, and who is told that it serves pods.

import { cpus } from 'node:os'
import { log } from '../lib/os/log.ts'
import { removeFlannelRules } from './firewall/flannel-rules.ts'
import { instanceOf } from './instance.ts'
import { run } from './kernel/run.ts'
import type { Lease } from './lease/lease.ts'
import type { NetworkConf } from './lease/network-configuration.ts'
import { WAIT_MS } from './network.ts'
import { remember, statePath, writeSubnetEnv } from './node/files.ts'
import { installNode, missingOf } from './node/install.ts'
import { notify } from './node/systemd.ts'
import type { Failure, Failures } from './scheduler/failures.ts'
import { pause } from './scheduler/pause.ts'
import { conntrackSysctls, setSysctls } from './services/conntrack-limits.ts'
import { removeKubeProxy } from './services/kube-proxy.ts'
import type { Settings } from './settings/settings.ts'
import { StoreError, type SubnetStore } from './store/store.ts'

/** Writes the remembered lease and subnet.env where their content differs. Gives the paths of the written files. */
export function writeNode(settings: Settings, { v4, v6 }: NetworkConf, lease: Lease, mtu: number): string[] {
  const { node, files, firewall } = settings
  const instance = instanceOf(settings)
  const subnet = {
    network: { ...(v4 ? { v4: v4.network } : {}), ...(v6 ? { v6: v6.network } : {}) },
    subnet: lease.subnets,
    mtu,
    ipMasq: firewall.masquerade,
  }
  // Writes the remembered lease first, because `cleanup` needs it to tell this subnet.env from flannel's. Writes
  // subnet.env even when the state cannot be written, so that pods can start.
  const written: string[] = []
  try {
    if (remember(files.stateDir, node, subnet, instance)) written.push(statePath(files.stateDir, 'lease', instance))
  } finally {
    if (writeSubnetEnv(files.subnetEnv, subnet)) written.push(files.subnetEnv)
  }
  return written
}

/** What follows once all parts have done their work: plugins, limits, the announcement, and what others have left. */
export async function settle(
  settings: Settings,
  { store, failures }: { readonly store: SubnetStore; readonly failures: Failures },
  signal: AbortSignal,
): Promise<void> {
  await installNode(settings)
  limitConnections(settings, failures)
  notify('READY=1')
  void announceReady(store, failures, signal)
  // Runs last. Until the agent's own rules are loaded, flannel's rules masquerade for the pods.
  if (settings.firewall.replaceFlannel)
    for (const what of await removeFlannelRules(run)) log(`agent: removed what flannel left: ${what}`)
  if (settings.services?.replacesKubeProxy)
    for (const what of await removeKubeProxy(run)) log(`agent: removed what kube-proxy left: ${what}`)
}

/** Installs what somebody removed of the plugins and their network. Gives the paths. Not while one is `held`. */
export async function reinstall(settings: Settings, held: ReadonlySet<string>): Promise<readonly string[]> {
  const missing = settings.files.install ? missingOf(settings.files) : []
  if (missing.length === 0 || missing.some((path) => held.has(path))) return []
  await installNode(settings)
  return missing
}

// Once at each start, as kube-proxy does. Who sets other values later keeps them until then.
function limitConnections({ services }: Settings, failures: Failures): void {
  if (!services?.conntrack) return
  const { done, failed } = setSysctls(conntrackSysctls(services.conntrack, cpus().length))
  for (const what of done) log(`agent: ${what}`)
  const texts = failed.map((text): Failure => ({ scope: 'part', text }))
  failures.report('limits of connections', texts)
}

// Publishes in the store that this node serves its pods. Tries until that succeeds, because the pods need no store.
async function announceReady(store: SubnetStore, failures: Failures, signal: AbortSignal): Promise<void> {
  for (let logged = ''; !signal.aborted; await pause(WAIT_MS, signal)) {
    try {
      await store.ready?.()
      failures.report('announcement', [])
      return
    } catch (cause) {
      if (!(cause instanceof StoreError)) throw cause
      // The state of the store already reports a store that does not answer.
      const text = `Cannot tell the store that this node serves its pods: ${cause.message}`
      failures.report('announcement', store.state().connected ? [{ scope: 'part', text }] : [])
      if (store.state().connected && text !== logged) log(`agent: ${text}`)
      logged = text
    }
  }
}
