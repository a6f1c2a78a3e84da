import { defineCheck } from '../check.ts'
import { shellWord } from '../shell.ts'

/** Another machine has the address of the uplink, too. The neighbours send to one of the two (RFC 5227). */
export const check = defineCheck({
  code: 'DR22',
  title: 'another machine has the address of this node',
  severity: 'error',
  reads: ['twins'],
  detect({ twins }) {
    return twins.map(({ ip, link, mac }) => {
      const what =
        mac === undefined
          ? `${ip} of ${link} is in use by another machine`
          : `${ip} of ${link} also answers from MAC ${mac}`
      const effect = 'packets for this node go to that machine at times; give one of the two another address'
      const command =
        mac === undefined
          ? `ip -6 addr show dev ${shellWord(link)} dadfailed`
          : `ip neigh show dev ${shellWord(link)} | sed -n /${mac}/p`
      return { what, effect, commands: [command] }
    })
  },
})
