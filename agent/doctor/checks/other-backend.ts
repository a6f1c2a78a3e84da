import { nameOf } from '../../state/reachability.ts'
import { defineCheck } from '../check.ts'

/** The number of nodes that a sentence names. */
const NAMED = 3

/** Nodes of one network use several backends. They do not reach each other's pods. */
export const check = defineCheck({
  code: 'DR51',
  title: 'nodes use different backends',
  severity: 'error',
  reads: ['status'],
  detect({ status }) {
    if (!status) return []
    const others = status.peers.filter(({ backend }) => backend !== status.backend)
    if (others.length === 0 || status.backend === 'alloc') return []
    const names = others.slice(0, NAMED).map((peer) => `${nameOf(peer)} uses ${peer.backend}`)
    const more = others.length > NAMED ? `, and ${others.length - NAMED} more differ` : ''
    return [
      {
        what: `This node uses the backend ${status.backend}; ${names.join(', ')}${more}`,
        effect: 'pods of these nodes do not reach each other',
        commands: ['systemctl restart plumb-agent'],
      },
    ]
  },
})
