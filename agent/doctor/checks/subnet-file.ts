import { isSix, networkOf } from '../../../lib/text/cidr.ts'
import { both } from '../../lease/families.ts'
import { defineCheck } from '../check.ts'

/** The plugin flannel takes the subnet of pods from subnet.env. */
export const check = defineCheck({
  code: 'DR25',
  title: 'subnet.env is missing or wrong',
  severity: 'error',
  dependsOn: ['DR26', 'DR29'],
  reads: ['subnetFile', 'lists', 'agent'],
  detect({ subnetFile, lists, agent }) {
    const { path, isThere, env, fault } = subnetFile
    const isNeeded = lists.files[0]?.list?.plugins.some(({ type }) => type === 'flannel') === true
    const command = agent ? 'systemctl restart plumb-agent' : 'systemctl start plumb-agent'
    if (!isThere && (isNeeded || (agent !== undefined && both(agent.subnets).length > 0))) {
      const effect = `pods fail with "open ${path}: no such file or directory"`
      return [{ what: `The file ${path} is missing`, effect, commands: [command] }]
    }
    if (fault !== undefined)
      return [{ what: `The file ${path} cannot be used (${fault})`, effect: 'pods do not start', commands: [command] }]
    const wrong = both(agent?.subnets ?? {}).find((lease) => {
      const said = env?.subnets.find((one) => isSix(one) === isSix(lease))
      return env !== undefined && (said === undefined || networkOf(said) !== networkOf(lease))
    })
    if (wrong === undefined || env === undefined) return []
    const what = `The file ${path} says ${env.subnets.join(' and ')}, and the lease of this node is ${wrong}`
    return [{ what, effect: 'new pods get addresses of another node', commands: [command] }]
  },
})
