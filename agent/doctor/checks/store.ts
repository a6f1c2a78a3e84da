import { defineCheck } from '../check.ts'

/** The agent does not reach its store. It goes on with what it knows. New nodes and new leases are not seen. */
export const check = defineCheck({
  code: 'DR46',
  title: 'the store is away',
  severity: 'warning',
  reads: ['status'],
  detect({ status }) {
    const { connected, error, name } = status?.store ?? {}
    if (connected !== false || error === undefined) return []
    return [
      {
        what: `The agent does not reach its store, ${name} (${error})`,
        effect: 'it goes on with what it knows, and does not see new nodes',
        commands: ['journalctl -u plumb-agent -n 20 --no-pager'],
      },
    ]
  },
})
