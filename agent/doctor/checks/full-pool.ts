import { defineCheck, type SeenFault } from '../check.ts'
import { shellWord } from '../shell.ts'

/** The part of a pool that may be taken. */
const FULL = 0.95

/** A pool has few addresses left, or keeps addresses of pods that are gone without DEL. */
export const check = defineCheck({
  code: 'DR30',
  title: 'pool of addresses is nearly full',
  severity: 'warning',
  reads: ['pools'],
  detect({ pools }) {
    return pools.flatMap(({ network, subnets, size, taken, left }): SeenFault[] => {
      const isFull = taken >= size * FULL
      if (!isFull && left === 0) return []
      const of = `${taken} of its ${size} addresses taken`
      const kept = left === 0 ? '' : `, ${left} of them by pods that are gone`
      const what = `The pool ${subnets.join(', ')} of the network ${network} has ${of}${kept}`
      const command = left === 0 ? `plumb cni list ${shellWord(network)}` : `plumb cni gc ${shellWord(network)}`
      return [{ what, effect: 'no pod starts when it is full', commands: [command] }]
    })
  },
})
