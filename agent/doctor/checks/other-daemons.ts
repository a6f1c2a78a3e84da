import { defineCheck, type SeenFault } from '../check.ts'

/** Programs that program routes and devices of pods, too, by command name. */
const OTHERS: Readonly<Record<string, string>> = {
  flanneld: 'flannel',
  'calico-node': 'Calico',
  'cilium-agent': 'Cilium',
  'kube-router': 'kube-router',
  'antrea-agent': 'Antrea',
  weaver: 'Weave Net',
}

/** Another network program still runs on this node and changes what the agent programs. */
export const check = defineCheck({
  code: 'DR52',
  title: 'another network program runs',
  severity: 'error',
  reads: ['processes', 'agent'],
  detect({ processes, agent }) {
    if (!agent) return []
    return processes.flatMap(({ pid, name, argv }): SeenFault[] => {
      const maker = OTHERS[name] ?? OTHERS[argv[0]?.split('/').at(-1) ?? '']
      if (maker === undefined) return []
      return [
        {
          what: `${name} of ${maker} runs on this node (pid ${pid})`,
          effect: 'it and the agent program the same devices and routes',
          commands: [`kill ${pid}`],
        },
      ]
    })
  },
})
