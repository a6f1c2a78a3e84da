import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { flanneld } from '../../scripts/peers.ts'
import { type Cluster as Etcd, startEtcd } from './etcd.ts'
import { type Networks, networksIn } from './etcd-networks.ts'
import { until } from './harness.ts'
import { type Node, subnetEnv } from './nodes.ts'
import { skip } from './skip.ts'

// Why a test of flanneld is skipped where it was not built.
const NO_FLANNELD =
  'there is no flanneld: build it with `node_modules/.bin/bun scripts/peers.ts flanneld`, which wants Go 1.24 and takes minutes'

/** A running flanneld. */
export interface Flanneld {
  log(): string
  /** Ends it as systemd would, and waits. */
  stop(): Promise<void>
}

/**
 * For the tests of a describe: networks in an etcd, and flannelds on their nodes, which end with the test. They are
 * skipped where there is no flanneld.
 */
export function besideFlanneld(): Networks & { flannel(node: Node, ...more: readonly string[]): Promise<Flanneld> } {
  let etcd: Etcd | undefined
  const running: Flanneld[] = []
  before(async function () {
    if (!flanneld()) skip(this, NO_FLANNELD)
    etcd = await startEtcd()
  })
  after(() => etcd?.stop())
  afterEach(async () => {
    await Promise.all(running.splice(0).map((one) => one.stop()))
  })
  const networks = networksIn(() => etcd as Etcd)
  return {
    ...networks,
    async flannel(node, ...more) {
      const made = await startFlanneld(node, etcd as Etcd, networks.prefix(), ...more)
      running.push(made)
      return made
    },
  }
}

// With the subnet file that plumb's agent has there; waits for that to be written.
async function startFlanneld(node: Node, etcd: Etcd, prefix: string, ...more: readonly string[]): Promise<Flanneld> {
  const path = join(node.dir, 'flanneld.log')
  const argv = [
    `--etcd-endpoints=${etcd.endpoints}`,
    `--etcd-prefix=${prefix}`,
    '--iface=eth0',
    `--subnet-file=${join(node.dir, 'subnet.env')}`,
    '--ip-masq=true',
    ...more,
  ]
  const child = Bun.spawn(['nsenter', `--net=${node.ns.path}`, '--', flanneld()?.path ?? '', ...argv], {
    stdin: 'ignore',
    stdout: 'ignore',
    stderr: Bun.file(path),
    // Each node has a key of its own, as on machines of their own.
    env: { ...process.env, WIREGUARD_KEY_FILE: join(node.dir, 'wgkey') },
  })
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
