// lane: longer
// Tests conf/monitoring/alerts.yaml with faults that take a minute, beside test/conf/alerts.test.ts.
import assert from 'node:assert/strict'
import { existsSync, readFileSync, renameSync } from 'node:fs'
import { join } from 'node:path'
import { until } from '../support/harness.ts'
import {
  type Fault,
  filtered,
  fireAndClear,
  monitored,
  NETWORK,
  PROGRAM,
  startPrometheus,
} from '../support/monitoring.ts'
import { type Cluster, fileStore, inCluster, type Node } from '../support/nodes.ts'
import { skip } from '../support/skip.ts'

/** The kernel's memory of a connection, with its room in the hash (struct nf_conn). */
const ENTRY_BYTES = 400

interface Monitored extends Cluster {
  readonly one: Node
  readonly two: Node
  /** Makes faults together, waits for their alerts, mends them, and waits until no alert is left. */
  fireAndClear(...faults: readonly Fault[]): Promise<void>
}

// Two agents without an alert, and a Prometheus.
function inMonitored(work: (monitored: Monitored, test: Mocha.Context) => Promise<void>) {
  return inCluster(
    2,
    (cluster) => fileStore(cluster, NETWORK),
    async (cluster, test) => {
      test.timeout(600_000)
      if (!existsSync(PROGRAM)) skip(test, 'Prometheus was not unpacked')
      const { nodes, hub, dir } = cluster
      const [one, two] = nodes as [Node, Node]
      const agents = await monitored(one, two, dir)
      await agents.ready()
      await agents.api.renew(30)
      const prometheus = await startPrometheus(hub, dir, 2)
      try {
        await until(async () => (await prometheus.ask('plumb_ready')).length === 2, 60_000)
        await work({ ...cluster, one, two, fireAndClear: (...faults) => fireAndClear(prometheus, faults) }, test)
      } finally {
        prometheus.stop()
      }
    },
  )
}

describe('alerts by faults of the network, the store and the kernel', () => {
  it(
    'a link with a smaller MTU, lost packets and a store that is away for a minute fire their alerts, and none is left',
    inMonitored(async ({ two, dir, fireAndClear: fire }) => {
      await fire(filtered('PlumbMtuBlackHole', two, 'udp dport 8472 ip length > 1350 drop'), away(join(dir, 'store')))
      await fire(filtered('PlumbPeerLoss', two, 'icmp type echo-request numgen random mod 100 < 40 drop'))
    }),
  )
  it(
    'more connections than nine tenths of what the kernel takes fire PlumbConntrackFull, until they are over',
    inMonitored(async ({ one, fireAndClear: fire }, test) => {
      const limit = Number(readFileSync('/proc/sys/net/netfilter/nf_conntrack_max', 'utf8'))
      const free = Number(/^MemAvailable: +(\d+)/m.exec(readFileSync('/proc/meminfo', 'utf8'))?.[1]) * 1024
      if (limit * ENTRY_BYTES > free / 4) skip(test, `${limit} connections would take a quarter of the memory`)
      await fire(connected(one, Math.ceil(limit * 0.95)))
    }),
  )
})

// Fills the table of a node, whose entries are its own. The limit is the machine's.
function connected({ ns }: Node, count: number): Fault {
  const table = ['inet', 'test_tracked']
  return {
    alert: 'PlumbConntrackFull',
    async make() {
      // Packets that get no answer, and no refusal either, stay in the table for 30 s.
      const rules = `table inet ${table[1]} { chain output { type filter hook output priority 0; ct state new accept; }
        chain input { type filter hook input priority 0; ip saddr 127.0.0.0/8 udp dport > 1023 drop; }
      }`
      assert.equal((await ns.exec(['nft', rules])).status, 0)
      await ns.ip('link', 'set', 'lo', 'up')
      const script = `const socket = await Bun.udpSocket({ hostname: '127.0.0.1' })
        for (let sent = 0; sent < ${count}; ) {
          const some = Array.from({ length: 500 }, (_, i) => sent + i)
          sent += socket.sendMany(some.flatMap((n) => ['x', 1024 + (n % 60000), '127.0.1.' + (1 + Math.floor(n / 60000))]))
          await Bun.sleep(0)
        }
        socket.close()`
      const { status, stderr } = await ns.exec([process.execPath, '-e', script])
      assert.equal(status, 0, stderr)
    },
    mend: () => ns.exec(['nft', 'delete', 'table', ...table]),
  }
}

function away(store: string): Fault {
  return {
    alert: 'PlumbStoreLag',
    make: () => renameSync(store, `${store}.away`),
    mend: () => renameSync(`${store}.away`, store),
  }
}
