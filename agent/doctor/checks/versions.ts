import { nameOf } from '../../state/reachability.ts'
import { defineCheck } from '../check.ts'

/** The number of nodes that a sentence names. */
const NAMED = 3

/** Nodes run other versions of plumb than this one: an update has stopped, or still goes on. */
export const check = defineCheck({
  code: 'DR53',
  title: 'nodes run different versions',
  severity: 'warning',
  reads: ['status'],
  detect({ status }) {
    if (!status) return []
    const others = status.peers.filter(({ version }) => version !== undefined && version !== status.version)
    if (others.length === 0) return []
    const names = others.slice(0, NAMED).map((peer) => `${nameOf(peer)} runs ${peer.version}`)
    const more = others.length > NAMED ? `, and ${others.length - NAMED} more differ` : ''
    return [
      {
        what: `This node runs plumb ${status.version}; ${names.join(', ')}${more}`,
        effect: 'nodes may not do the same; let the update go to its end',
        commands: ['kubectl -n plumb rollout status daemonset/plumb-agent --timeout=10s'],
      },
    ]
  },
})
