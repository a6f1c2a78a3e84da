import { defineCheck, type SeenFault } from '../check.ts'
import { shellWord } from '../shell.ts'

/** Two nodes have one subnet of pods. The older one keeps it (agent/store/kube/node.ts, agent/backend/peers.ts). */
export const check = defineCheck({
  code: 'DR26',
  title: 'two nodes have one subnet',
  severity: 'error',
  reads: ['status'],
  detect({ status }) {
    if (!status) return []
    const { node, reasons, degraded, unreadableWhy = [] } = status
    const own = [...reasons, ...degraded].find((text) => OVERLAP.test(text))
    const all = [...unreadableWhy, ...(own === undefined ? [] : [{ key: node, why: own }])]
    const seen = new Map<string, SeenFault>()
    for (const { key, why } of all) {
      const [, cidr, older] = OVERLAP.exec(why) ?? []
      if (cidr === undefined) continue
      seen.set(key, {
        what: `The Nodes ${key} and ${older} have the pod CIDR ${cidr}, and ${older} is older`,
        effect: `no other node reaches pods of ${key}`,
        commands: [`kubectl delete node ${shellWord(key)}`],
      })
    }
    return [...seen.values()]
  },
})

const OVERLAP = /its pod CIDR (.+) overlaps that of node "([^"]+)", which is older/
