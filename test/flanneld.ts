import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { flanneld } from '../scripts/peers.ts'
import type { Cluster as Etcd } from './etcd.ts'
import { until } from './harness.ts'
import { type Node, subnetEnv } from './nodes.ts'

/** Why a test of flanneld is skipped where it was not built. */
export const NO_FLANNELD = 'there is no flanneld: build it with `node_modules/.bin/bun scripts/peers.ts flanneld`, which wants Go 1.24 and takes minutes'

/** A running flanneld. */
export interface Flanneld {
  log(): string
  /** Ends it as systemd would, and waits. */
  stop(): Promise<void>
}

/** Starts the real flanneld on a node, with the subnet file that plumb's agent has there, and waits for that to be written. */
export async function startFlanneld(node: Node, etcd: Etcd, prefix: string, ...more: readonly string[]): Promise<Flanneld> {
  const path = join(node.dir, 'flanneld.log')
  const argv = [`--etcd-endpoints=${etcd.endpoints}`, `--etcd-prefix=${prefix}`, '--iface=eth0', `--subnet-file=${join(node.dir, 'subnet.env')}`, '--ip-masq=true', ...more]
  const child = Bun.spawn(['nsenter', `--net=${node.ns.path}`, '--', flanneld()?.path ?? '', ...argv], { stdin: 'ignore', stdout: 'ignore', stderr: Bun.file(path) })
  const log = () => readFileSync(path, 'utf8')
  await until(() => {
    if (child.exitCode !== null) throw new Error(`flanneld ended with ${child.exitCode}`)
    return /Running backend/.test(log()) && subnetEnv(node)
  }, 20_000).catch((cause) => {
    child.kill('SIGKILL')
    throw new Error(`flanneld does not start: ${log()}`, { cause })
  })
  return {
    log,
    async stop() {
      child.kill('SIGTERM')
      // It does not always end by that.
      const late = setTimeout(() => child.kill('SIGKILL'), 3000)
      await child.exited
      clearTimeout(late)
    },
  }
}
