import { defineCheck } from '../check.ts'
import { agentSetting } from '../shell.ts'

/** Rules of kube-proxy beside the agent's Services: each connection gets one of two answers. */
export const check = defineCheck({
  code: 'DR13',
  title: 'kube-proxy has rules beside the agent',
  severity: 'error',
  reads: ['agent', 'ruleset', 'links'],
  detect({ agent, ruleset, links }) {
    if (!agent?.services) return []
    const chains = ruleset.chains.filter(
      ({ name, table, rules }) => (name.startsWith('KUBE-SERVICES') || table === 'kube-proxy') && rules.length > 0,
    )
    const ipvs = links.find(({ name }) => name === 'kube-ipvs0')
    if (chains.length === 0 && !ipvs) return []
    const places = [...new Set(chains.map(({ family, table, name }) => `${family} ${table} ${name}`))]
    const what = [...places.slice(0, 3).map((place) => `the chain ${place}`), ...(ipvs ? ['the link kube-ipvs0'] : [])]
    return [
      {
        what: `kube-proxy left ${what.join(', ')}, and the agent serves Services`,
        effect: 'a Service is answered by either of them; end kube-proxy, and the agent removes what it left',
        commands: agentSetting('replace-kube-proxy', 'true'),
      },
    ]
  },
})
