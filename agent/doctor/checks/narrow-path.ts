import { nameOf } from '../../state/reachability.ts'
import { defineCheck } from '../check.ts'

/** A path takes smaller packets than pods may send, and the routes to the peer have its size. */
export const check = defineCheck({
  code: 'DR57',
  title: 'the path to a node takes smaller packets than pods may send',
  severity: 'warning',
  dependsOn: ['DR18', 'DR17'],
  reads: ['status', 'network'],
  detect({ status, network }) {
    const narrow = (status?.peers ?? []).filter(({ problem, probe }) => !problem && probe?.state === 'narrow')
    return narrow.flatMap((peer) => {
      const { routeMtu, ips } = peer
      const mtus = [routeMtu?.v4, routeMtu?.v6].filter((one) => one !== undefined)
      if (mtus.length === 0 || !network) return []
      const size = Math.min(...mtus)
      const name = nameOf(peer)
      return [
        {
          what: `Packets over ${size} bytes to ${name} vanish; pods have ${network.mtu}, and the routes to ${name} have the size that arrives`,
          effect: `pods learn it packet by packet; raise the MTU of the link between the nodes, or set "MTU" of the backend so that pods get ${size}`,
          commands: [`ip route get ${ips.v4 ?? ips.v6}`],
        },
      ]
    })
  },
})
