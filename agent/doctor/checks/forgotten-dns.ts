import type { Check } from '../check.ts'
import { shellWord } from '../shell.ts'

/**
 * Policies let a pod send somewhere, and not to the name servers. A pod that may send nothing at all is as somebody
 * wants it.
 */
export const check: Check = {
  code: 'DR50',
  title: 'policies forget DNS',
  severity: 'warning',
  detect({ nameless }) {
    return nameless.map(({ pod, policies }) => {
      const [namespace = ''] = pod.split('/')
      const several = policies.length > 1
      return {
        what: `${policies.join(', ')} ${several ? 'isolate' : 'isolates'} ${pod} for egress and ${several ? 'forget' : 'forgets'} DNS`,
        effect: 'the pod looks up no name',
        commands: [`echo '${POLICY}' | kubectl -n ${shellWord(namespace)} apply -f -`],
      }
    })
  },
}

// Each pod of the namespace may then send to port 53. YAML takes JSON.
const DNS = ['UDP', 'TCP'].map((protocol) => ({ protocol, port: 53 }))
const POLICY = JSON.stringify({
  apiVersion: 'networking.k8s.io/v1',
  kind: 'NetworkPolicy',
  metadata: { name: 'allow-dns' },
  spec: { podSelector: {}, policyTypes: ['Egress'], egress: [{ ports: DNS }] },
})
