// Tests conf/monitoring/alerts.yaml with faults that take a minute, beside test/long/alerts.test.ts.
import { existsSync, renameSync } from 'node:fs'
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
import { fileStore, inCluster, type Node } from '../support/nodes.ts'
import { skip } from '../support/skip.ts'

describe('alerts by faults of the network and the store', () => {
  it(
    '[DG14] a link with a smaller MTU, lost packets and a store that is away for a minute fire their alerts, and none is left',
    inCluster(
      2,
      (cluster) => fileStore(cluster, NETWORK),
      async ({ nodes, hub, dir }, test) => {
        test.timeout(600_000)
        if (!existsSync(PROGRAM)) skip(test, 'Prometheus was not unpacked')
        const [one, two] = nodes as [Node, Node]
        const agents = await monitored(one, two, dir)
        await agents.ready()
        await agents.api.renew(30)
        const prometheus = await startPrometheus(hub, dir, 2)
        try {
          await until(async () => (await prometheus.ask('plumb_ready')).length === 2, 60_000)
          await fireAndClear(prometheus, [
            filtered('PlumbMtuBlackHole', two, 'udp dport 8472 ip length > 1350 drop'),
            away(join(dir, 'store')),
          ])
          await fireAndClear(prometheus, [
            filtered('PlumbPeerLoss', two, 'icmp type echo-request numgen random mod 100 < 40 drop'),
          ])
        } finally {
          prometheus.stop()
        }
      },
    ),
  )
})

function away(store: string): Fault {
  return {
    alert: 'PlumbStoreLag',
    make: () => renameSync(store, `${store}.away`),
    mend: () => renameSync(`${store}.away`, store),
  }
}
