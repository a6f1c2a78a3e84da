import { namespaceOf, podOf, policyOf } from '../../../agent/cluster/objects.ts'
import { compile } from '../../../agent/policy/compile.ts'
import { load } from '../../../agent/policy/table.ts'
import type { Parts, Target } from '../target.ts'

// The text that objects of the API become. A name or a value of an object must not end a line or a word of it.
const [IP, CIDR, NAME] = ['[0-9a-f:.]+', '[0-9a-f:.]+/\\d{1,3}', '(?:pods|ports|self)[46](?:_[0-9a-f]{32})?']
const MATCH = `(?:ip6? [sd]addr (?:@${NAME}|${CIDR})|ip6? [sd]addr != \\{ ${CIDR}(?:, ${CIDR})* \\}|meta nfproto ipv[46]|meta l4proto (?:tcp|udp|sctp)|(?:tcp|udp|sctp) dport \\d+(?:-\\d+)?|ip6? daddr \\. th dport @${NAME})`
const LINES = [
  `add set inet plumb_policy ${NAME} \\{ type ipv[46]_addr(?: \\. (?:ipv[46]_addr|inet_service))?; \\}`,
  `add element inet plumb_policy ${NAME} \\{ ${IP}(?: \\. (?:${IP}|\\d+))?(?:, ${IP}(?: \\. (?:${IP}|\\d+))?)* \\}`,
  'add chain inet plumb_policy (?:in|e)gress_[0-9a-f]{32}',
  `add rule inet plumb_policy (?:in|e)gress_[0-9a-f]{32} (?:counter drop|(?:${MATCH} )*return comment "[-a-z0-9./]{1,120}")`,
  `add element inet plumb_policy (?:in|e)gress[46] \\{ ${IP} : jump (?:in|e)gress_[0-9a-f]{32}(?:, ${IP} : jump (?:in|e)gress_[0-9a-f]{32})* \\}`,
].map((line) => new RegExp(`^${line}$`))

/** What the agent reads of the Kubernetes API or of manifests, and says to nft. */
export const POLICY: readonly Target[] = [
  {
    name: 'policy objects',
    feed(parts) {
      const [pod, namespace, policy] = [podOf(read(parts, 'pod')), namespaceOf(read(parts, 'namespace')), policyOf(read(parts, 'policy'))]
      const pods = new Map(pod ? [[`${pod.namespace}/${pod.name}`, { ...pod, namespace: policy.namespace, node: 'n' }]] : [])
      const cluster = { pods, namespaces: new Map([[namespace.name, namespace]]), policies: new Map([[`${policy.namespace}/${policy.name}`, policy]]) }
      const text = load(compile(cluster, 'n'))
      return text
        .split('\n')
        .filter((line) => line.startsWith('add '))
        .flatMap((line) => (LINES.some((one) => one.test(line)) ? [] : [`nft is told ${JSON.stringify(line.slice(0, 400))}`]))
    },
  },
]

function read(parts: Parts, name: string): unknown {
  try {
    return JSON.parse(parts[name]?.toString() ?? 'null')
  } catch {
    // The API and YAML give values: a text that is none never reaches the reader.
    return undefined
  }
}
