import { firstOf } from '../../../lib/text/listing.ts'
import { defineCheck } from '../check.ts'
import { shellWord } from '../shell.ts'

/** The number of pods that a sentence names. */
const NAMED = 3

/** Pods keep the MTU of their start. After the network's MTU became smaller, their large packets are lost. */
export const check = defineCheck({
  code: 'DR45',
  title: 'pods have an older MTU',
  severity: 'warning',
  reads: ['pods', 'links', 'network'],
  detect({ pods, links, network }) {
    if (!network) return []
    const mtus = new Map(links.map(({ name, mtu }) => [name, mtu]))
    const old = pods.filter(({ link }) => link !== undefined && (mtus.get(link) ?? 0) > network.mtu)
    if (old.length === 0) return []
    const names = old.map(({ container }) => container)
    const mtu = mtus.get(old[0]?.link ?? '')
    const count = old.length === 1 ? '1 pod has' : `${old.length} pods have`
    return [
      {
        what: `${count} MTU ${mtu}, and the network has ${network.mtu} now (${firstOf(names, NAMED)})`,
        effect: 'their large packets to other nodes are lost',
        commands: old.map(({ container }) => `crictl stopp ${shellWord(container)}`),
      },
    ]
  },
})
