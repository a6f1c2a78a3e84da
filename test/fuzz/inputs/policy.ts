import { isIP } from 'node:net'
import { namespaceOf, type Pod, podOf, policyOf } from '../../../agent/cluster/objects.ts'
import { admissionCommands } from '../../../agent/policy/admission.ts'
import { Endpoints } from '../../../agent/policy/endpoints.ts'
import { tableText } from '../../../agent/policy/program.ts'
import { compile } from '../../../agent/policy/state.ts'
import { commands } from '../../../lib/os/answers.ts'
import { CniError, errorOf } from '../../../lib/text/errors.ts'
import type { Ip } from '../../../lib/text/ip.ts'
import { parse } from '../../../lib/text/values.ts'
import type { Parts, Target } from '../target.ts'

// The text that objects of the API become. A name or a value of an object must not end a line or a word of it.
const [IP, ID] = ['[0-9a-f:.]+', '[0-9a-f]{32}']
const RANGE = `${IP}(?:-${IP})?`
const SET = `(?:(?:pods|ports|nodes|blocks)[46]_${ID}|dports_${ID}|self[46])`
const PORTS = `(?:\\d+(?:-\\d+)?|@${SET})`
const CHAIN = `(?:np_|tier_)?(?:in|out)_${ID}`
const MATCH = `(?:ip6? [sd]addr (?:@${SET}|${RANGE})|meta nfproto ipv[46]|meta l4proto (?:tcp|udp|sctp)|(?:tcp|udp|sctp) dport ${PORTS}|ip6? daddr \\. th dport @${SET})`
const COUNTER = `(?:allow|deny)_(?:in|out)_${ID}`
const END = '(?:accept|goto denied_(?:in|out)|return)'
/** Where the packets of an address go. */
const WAY = `(?:accept|goto (?:unknown|${CHAIN}))`
const LINES = [
  `add set inet plumb_policy ${SET} \\{ type (?:inet_service|ipv[46]_addr(?: \\. (?:ipv[46]_addr|inet_service))?); (?:flags interval; elements = \\{ (?:${RANGE}|\\d+(?:-\\d+)?)(?:, (?:${RANGE}|\\d+(?:-\\d+)?))* \\} )?\\}`,
  `add counter inet plumb_policy ${COUNTER}`,
  `add element inet plumb_policy ${SET} \\{ ${IP}(?: \\. (?:${IP}|\\d+))?(?:, ${IP}(?: \\. (?:${IP}|\\d+))?)* \\}`,
  `add chain inet plumb_policy ${CHAIN}`,
  `add rule inet plumb_policy ${CHAIN} (?:jump ${CHAIN}|(?:${MATCH} )*(?:counter name ${COUNTER} )?${END}(?: comment "[-a-z0-9./ \\[\\]]{1,120}")?)`,
  `add element inet plumb_policy (?:in|e)gress[46] \\{ ${IP} : ${WAY}(?:, ${IP} : ${WAY})* \\}`,
].map((line) => new RegExp(`^${line}$`))

/** What the agent reads of the Kubernetes API or of manifests, and says to nft. */
export const POLICY: readonly Target[] = [
  {
    name: 'policy objects',
    feed(parts) {
      const [pod, namespace, policy] = [
        podOf(read(parts, 'pod')),
        namespaceOf(read(parts, 'namespace')),
        policyOf(read(parts, 'policy')),
      ]
      const pods = new Map(
        pod ? [[`${pod.namespace}/${pod.name}`, { ...pod, namespace: policy.namespace, node: 'n' }]] : [],
      )
      const cluster = {
        pods,
        namespaces: new Map([[namespace.name, namespace]]),
        policies: new Map([[`${policy.namespace}/${policy.name}`, policy]]),
        clusterPolicies: new Map(),
        nodes: new Map(),
      }
      return tableText(compile(cluster, 'n')).flatMap((line) =>
        LINES.some((one) => one.test(line)) ? [] : [`nft is told ${JSON.stringify(line.slice(0, 400))}`],
      )
    },
  },
  {
    name: 'policy questions',
    async feed({ question }) {
      const changed: string[] = []
      const other: Pod = { namespace: 'x', name: 'other', labels: {}, ips: ['10.1.0.2' as Ip], ports: [] }
      const endpoints = new Endpoints(
        (pod) => changed.push(pod),
        () => other,
      )
      const asked = commands(
        'command',
        admissionCommands({
          ready() {},
          admit: async (one) => endpoints.admit(one),
          release: async (one) => void endpoints.release(one),
        }),
      )
      endpoints.admit({
        containerId: parse.containerId('c1'),
        ifname: parse.ifname('eth0'),
        namespace: 'x',
        pod: 'a',
        addresses: ['10.1.0.3' as Ip],
      })
      const reply = await asked((question ?? Buffer.of()).toString(), new AbortController().signal).catch(asAnswered)
      const wrong = endpoints
        .all()
        .flatMap(({ addresses, namespace, pod, ifname }) => [
          ...addresses.filter((ip) => isIP(ip) === 0),
          ...[namespace, pod].filter((name) => !/^[a-z0-9.-]{1,253}$/.test(name)),
          ...(/^[^\s/:]{1,15}$/.test(ifname) ? [] : [ifname]),
        ])
      // An address is one pod's.
      const all = [
        ...endpoints.all().flatMap(({ addresses }) => [...new Set(addresses)]),
        ...(endpoints.of('x/other').length > 0 ? [] : endpoints.addressesOf(other)),
      ]
      const twice = all.filter((ip, i) => all.indexOf(ip) !== i)
      return [
        ...wrong.map((one) => `it takes ${JSON.stringify(one)}`),
        ...twice.map((ip) => `two pods have ${ip}`),
        ...(Object.keys(reply).length > 0 ? [`it answers ${JSON.stringify(reply)}`] : []),
      ]
    },
  },
]

// The error as the socket's asker gets it.
function asAnswered(cause: unknown): never {
  const { code, msg, details } = errorOf(cause)
  throw new CniError(code, msg, details)
}

function read(parts: Parts, name: string): unknown {
  try {
    return JSON.parse(parts[name]?.toString() ?? 'null')
  } catch {
    // The API and YAML give values: a text that is none never reaches the reader.
    return undefined
  }
}
