import { defineCheck } from '../check.ts'
import { shellWord } from '../shell.ts'

/** The Node keeps the condition that a cloud or an earlier network has set. The scheduler then sends no pods. */
export const check = defineCheck({
  code: 'DR47',
  title: 'Node still counts as without a network',
  severity: 'error',
  reads: ['status'],
  detect({ status }) {
    if (status?.store.isUnavailable !== true) return []
    const condition = { type: 'NetworkUnavailable', status: 'False', reason: 'FlannelIsUp' }
    const change = JSON.stringify({ status: { conditions: [condition] } })
    return [
      {
        what: `The Node ${status.node} has the condition NetworkUnavailable, and its agent serves pods`,
        effect: 'the scheduler sends no pods to this node',
        commands: [`kubectl patch node ${shellWord(status.node)} --subresource=status --type=strategic -p '${change}'`],
      },
    ]
  },
})
