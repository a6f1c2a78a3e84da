import { type Service, type Slice, serviceOf, sliceOf } from '../../../agent/cluster/services.ts'
import { compile, elementsOf } from '../../../agent/services/compile.ts'
import { shapeChains, sources } from '../../../agent/services/table.ts'
import type { Parts, Target } from '../target.ts'

// The text that Services and EndpointSlices become. A name or a value of an object must not end a line or a word of it.
const [V4, V6] = ['\\d+\\.\\d+\\.\\d+\\.\\d+', '[0-9a-f:.]+']
const KEY = `(?:(?:${V4}|${V6}) \\. )?(?:(?:tcp|udp|sctp) \\. )?\\d+(?: \\. (?:\\d+|0x[0-9a-f]{8}))?`
const ELEMENT = new RegExp(
  `^(?:port)?(?:svc|eps|tok|sel|none)[46](?:tcp|udp|sctp)? \\{ ${KEY}(?: : (?:drop|goto (?:vip|port)[46]_(?:tcp|udp|sctp)_\\d+(?:_l\\d+)?(?:_s\\d+)?(?:_m)?|(?:${V4}|${V6}) \\. \\d+|0x[0-9a-f]{8}))? \\}$`,
)
const RANGES = new RegExp(
  `^ {2}set (?:restricted|allowed)[46] \\{ type [a-z0-9_ .]+;(?: flags interval;)?(?: elements = \\{ (?:${V4}|${V6}) \\. (?:tcp|udp|sctp) \\. \\d+(?: \\. ${V6}/\\d+)?(?:, (?:${V4}|${V6}) \\. (?:tcp|udp|sctp) \\. \\d+(?: \\. ${V6}/\\d+)?)* \\};)? \\}$`,
)

/** What the agent reads of the Kubernetes API or of manifests, and says to nft. */
export const SERVICES: readonly Target[] = [
  {
    name: 'service objects',
    feed(parts) {
      const service: Service | undefined = serviceOf(read(parts, 'service'))
      const slice: Slice | undefined = sliceOf(read(parts, 'slice'))
      if (!service) return []
      const compiled = compile(service, slice ? [slice] : [], { name: 'n', zone: 'z' })
      const found: string[] = []
      for (const frontend of compiled.frontends.values()) {
        const { answer, cluster, local } = frontend
        for (const [set, key, value] of elementsOf(frontend)) {
          const text = `${set} { ${key}${value && ` : ${value}`} }`
          if (!ELEMENT.test(text)) found.push(`nft is told ${JSON.stringify(text.slice(0, 400))}`)
        }
        if (typeof answer === 'object' && (answer.cluster !== cluster.length || (answer.local ?? 0) !== local.length))
          found.push(`a chain for other numbers of endpoints: ${JSON.stringify(frontend)}`)
        if (typeof answer === 'object' && shapeChains(answer).some(([, { rules }]) => rules.length === 0))
          found.push(`a chain without a rule: ${JSON.stringify(answer)}`)
      }
      for (const line of sources(compiled.restricted))
        if (line.includes('elements') && !RANGES.test(line))
          found.push(`nft is told ${JSON.stringify(line.slice(0, 400))}`)
      // What stays the same keeps its slots.
      const again = compile(service, slice ? [slice] : [], { name: 'n', zone: 'z' }, compiled)
      if (!Bun.deepEquals(again, compiled)) found.push('the same objects give another result the second time')
      return found
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
