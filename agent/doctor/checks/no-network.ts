import { defineCheck, type SeenFault } from '../check.ts'
import { agentSetting, shellWord } from '../shell.ts'

/** The runtime finds no network that it can use. kubelet then says "cni config uninitialized". */
export const check = defineCheck({
  code: 'DR38',
  title: 'the runtime has no network',
  severity: 'error',
  inAgent: 'node',
  reads: ['lists', 'agent', 'pods'],
  detect({ lists: { dir, files }, agent, pods }) {
    // A machine without an agent and without pods needs none.
    if (files.length === 0 && (agent !== undefined || pods.length > 0)) {
      const what = `There is no *.conflist, *.conf or *.json file in ${dir}`
      const effect = 'the node says "cni config uninitialized" and starts no pod'
      return [{ what, effect, commands: agentSetting('install-cni', 'true') }]
    }
    return files.slice(0, 1).flatMap(({ path, fault }): SeenFault[] => {
      if (fault === undefined) return []
      const what = `The runtime takes ${path} first, and it cannot be used (${fault})`
      return [{ what, effect: 'no pod starts', commands: [`mv ${shellWord(path)} ${shellWord(`${path}.off`)}`] }]
    })
  },
})
