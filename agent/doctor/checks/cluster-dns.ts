import { defineCheck, type SeenFault } from '../check.ts'
import type { Resolver } from '../facts/resolver.ts'
import { dnsOf } from '../facts/services.ts'
import { shellWord } from '../shell.ts'

/** What systemd-resolved writes besides its own stub (man systemd-resolved(8)). */
const UPSTREAM = '/run/systemd/resolve/resolv.conf'

/** No name server of the cluster is ready, or CoreDNS asks itself, because the node's own stub is its name server. */
export const check = defineCheck({
  code: 'DR48',
  title: 'pods cannot look up names',
  severity: 'error',
  reads: ['services', 'resolver'],
  detect({ services, resolver }) {
    const dns = dnsOf(services ?? [])
    const isReady = dns?.ports.some(({ endpoints }) => endpoints.some(({ leftOut }) => leftOut === undefined)) ?? true
    const seen: SeenFault[] =
      dns === undefined || isReady
        ? []
        : [
            {
              what: `The Service ${dns.namespace}/${dns.name} (${dns.ports[0]?.addresses[0]}) has no ready endpoint`,
              effect: 'no pod looks up a name',
              commands: [`kubectl -n ${dns.namespace} get pods -l k8s-app=kube-dns -o wide`],
            },
          ]
    return [...seen, ...loopOf(resolver)]
  },
})

function loopOf(resolver: Resolver | undefined): SeenFault[] {
  const own = resolver?.servers.find((ip) => /^(127\.|::1$)/.test(ip))
  if (resolver === undefined || own === undefined) return []
  const { path, kubelet } = resolver
  const set = `grep -q ^resolvConf: ${shellWord(kubelet)} && sed -i 's,^resolvConf:.*,resolvConf: ${UPSTREAM},' ${shellWord(kubelet)} || echo 'resolvConf: ${UPSTREAM}' >>${shellWord(kubelet)}`
  return [
    {
      what: `kubelet gives pods ${path}, whose name server ${own} is the pod itself there`,
      effect: 'CoreDNS asks itself and ends with "Loop detected"',
      commands: [set, 'systemctl restart kubelet'],
    },
  ]
}
