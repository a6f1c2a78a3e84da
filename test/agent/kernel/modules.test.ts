// lane: netns
// Tests agent/kernel/fou.ts and agent/kernel/batch.ts.
import { until } from '../../support/harness.ts'
import { fileStore, inCluster, type Node } from '../../support/nodes.ts'
import { skip } from '../../support/skip.ts'

const NETWORK = '10.244.0.0/16'
const SAID = {
  ipip: /this kernel has no links of type ipip: modprobe ipip, or install the kernel's package of further modules/,
  wireguard:
    /this kernel has no links of type wireguard: modprobe wireguard, or install the kernel's package of further modules/,
  udp: /this kernel has no module fou: modprobe fou, or install the kernel's package of further modules/,
} as const

describe('plumb agent on a kernel without a module', () => {
  for (const Type of ['ipip', 'udp', 'wireguard'] as const)
    it(
      `${Type}: log and status name the module and what to do`,
      inCluster(
        1,
        (one) => fileStore(one, { Network: NETWORK, Backend: { Type } }),
        async ({ nodes }, test) => {
          const [node] = nodes as [Node]
          const probe = Type === 'udp' ? 'modprobe fou || ip fou show' : `ip link add probe0 type ${Type}`
          if ((await node.ns.exec(['sh', '-c', probe])).status === 0) skip(test, `this kernel has what ${Type} needs`)
          const agent = node.agent()
          await until(() => SAID[Type].test(agent.log()), 10_000)
          await until(async () => {
            const status = await agent.status()
            return status?.ready === false && SAID[Type].test(status.reasons.join())
          }, 10_000)
        },
      ),
    )
})
