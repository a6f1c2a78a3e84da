import { defineCheck } from '../check.ts'
import { agentSetting } from '../shell.ts'

/** Packets arrive with wrong checksums. Network cards and kernels before 5.7 make them for tunnels (flannel#1279). */
export const check = defineCheck({
  code: 'DR20',
  title: 'packets arrive with wrong checksums',
  severity: 'error',
  reads: ['counters'],
  detect({ counters }) {
    const names = ['Udp.InCsumErrors', 'Tcp.InCsumErrors', 'Icmp.InCsumErrors']
    const wrong = names.filter((name) => (counters.growth.get(name) ?? 0) > 0)
    if (wrong.length === 0) return []
    const sum = wrong.reduce((all, name) => all + (counters.growth.get(name) ?? 0), 0)
    return [
      {
        what: `${sum} packets with wrong checksums came in ${(counters.ms / 1000).toFixed(1)} s (${wrong.join(', ')})`,
        effect: 'the kernel drops them, and connections hang; switch the offload of checksums off at the sender',
        commands: agentSetting('tx-checksum-offload', 'off'),
      },
    ]
  },
})
