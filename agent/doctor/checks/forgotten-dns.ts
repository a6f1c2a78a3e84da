import { defineCheck } from '../check.ts'
import { shellWord } from '../shell.ts'

/**
 * Policies let a pod send somewhere, and not to the name servers. A pod that may send nothing at all is as somebody
 * wants it.
 */
export const check = defineCheck({
  code: 'DR50',
  title: 'policies forget DNS',
  severity: 'warning',
  reads: ['nameless'],
  detect({ nameless }) {
    return nameless.map(({ pod, policies, accepting }) => {
      const several = policies.length > 1
      return {
        what: `${policies.join(', ')} ${several ? 'isolate' : 'isolates'} ${pod} for egress and ${several ? 'forget' : 'forgets'} DNS`,
        effect: 'the pod looks up no name',
        commands: [commandFor(accepting)],
      }
    })
  },
})

// The policy gets one rule more, and selects the same pods as before. Another policy could isolate other pods.
function commandFor(policy: string): string {
  const [, tiered] = /^ClusterNetworkPolicy (\S+)/.exec(policy) ?? []
  if (tiered !== undefined) return `kubectl edit clusternetworkpolicy ${shellWord(tiered)}`
  const [namespace = '', name = ''] = policy.split('/')
  return `kubectl -n ${shellWord(namespace)} patch networkpolicy ${shellWord(name)} --type=json -p '${PATCH}'`
}

const DNS = ['UDP', 'TCP'].map((protocol) => ({ protocol, port: 53 }))
const PATCH = JSON.stringify([{ op: 'add', path: '/spec/egress/-', value: { ports: DNS } }])
