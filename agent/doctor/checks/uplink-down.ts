import { defineCheck } from '../check.ts'

/** The link towards the other nodes carries nothing. */
export const check = defineCheck({
  code: 'DR24',
  title: 'link to the other nodes is down',
  severity: 'error',
  inAgent: 'part',
  isOfNode: true,
  reads: ['agent', 'links'],
  detect({ agent, links }) {
    const name = agent?.uplink?.name
    const link = links.find((one) => one.name === name)
    if (name === undefined || link?.hasCarrier === true) return []
    const effect = 'pods reach only this node'
    const commands = [`ip link set dev ${name} up`]
    if (link === undefined) return [{ what: `The uplink ${name} is gone`, effect, commands: ['ip link show'] }]
    const why = link.isUp ? 'has no carrier: its cable or its other end is down' : 'is down'
    return [{ what: `The uplink ${name} ${why}`, effect, commands }]
  },
})
