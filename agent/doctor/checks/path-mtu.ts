import { nameOf } from '../../state/reachability.ts'
import { defineCheck, type SeenFault } from '../check.ts'

/**
 * Large packets to a peer vanish, small ones arrive: a link on the way has a smaller MTU, and nobody says so. DR57 has
 * those peers whose routes say it.
 */
export const check = defineCheck({
  code: 'DR19',
  title: 'large packets to another node vanish',
  severity: 'error',
  dependsOn: ['DR18', 'DR17'],
  reads: ['status', 'reach', 'network'],
  detect({ status, reach, network }) {
    if (!status || !network) return []
    const narrow = status.peers.filter(
      ({ problem, probe, routeMtu }) => problem === undefined && probe?.state === 'narrow' && !routeMtu,
    )
    return narrow.flatMap((peer): SeenFault[] => {
      const { isTunnelled = true, largest } = (peer.ips.v4 === undefined ? undefined : reach.get(peer.ips.v4)) ?? {}
      if (!isTunnelled || (largest ?? 0) >= network.mtu) return []
      const limit = largest === undefined ? '' : `over ${largest} bytes `
      const advice = largest === undefined ? '' : `, or set "MTU" of the backend to ${largest}`
      return [
        {
          what: `Packets ${limit}to ${nameOf(peer)} vanish; pods have ${network.mtu}`,
          effect: `large answers hang; raise the MTU of the link between the nodes${advice}`,
          commands: [`ip route get ${peer.ips.v4 ?? peer.ips.v6}`],
        },
      ]
    })
  },
})
