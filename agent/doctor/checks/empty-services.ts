import { firstOf } from '../../../lib/text/listing.ts'
import { defineCheck, type SeenFault } from '../check.ts'
import { dnsOf } from '../facts/services.ts'
import { shellWord } from '../shell.ts'

/** The number of Services that a sentence names. */
const NAMED = 3

/** The selector of a Service matches no pod, or nobody listens at its targetPort. */
export const check = defineCheck({
  code: 'DR49',
  title: 'a Service leads nowhere',
  severity: 'warning',
  reads: ['services', 'unheard'],
  detect({ services, unheard }) {
    const dns = dnsOf(services ?? [])
    const empty = (services ?? []).filter(
      (one) => one !== dns && one.ports.length > 0 && one.ports.every(({ endpoints }) => endpoints.length === 0),
    )
    const names = empty.map(({ namespace, name }) => `${namespace}/${name}`)
    const [first] = empty
    const has = names.length === 1 ? 'Service %s has' : 'Services %s have'
    const none: SeenFault[] = first
      ? [
          {
            what: `The ${has.replace('%s', firstOf(names, NAMED))} no endpoints, because no pod matches`,
            effect: 'clients are refused; compare the selector with the labels of pods',
            commands: [
              `kubectl -n ${shellWord(first.namespace)} get service ${shellWord(first.name)} -o jsonpath='{.spec.selector}'`,
            ],
          },
        ]
      : []
    const silent = unheard.map(({ service, address }): SeenFault => {
      const [namespace = '', name = ''] = service.split('/')
      return {
        what: `The Service ${service} leads to ${address}, and nobody listens there`,
        effect: 'its clients are refused; compare its targetPort with the port of the program',
        commands: [`kubectl -n ${shellWord(namespace)} get service ${shellWord(name)} -o jsonpath='{.spec.ports}'`],
      }
    })
    return [...none, ...silent]
  },
})
