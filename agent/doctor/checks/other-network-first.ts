import { basename } from 'node:path'
import { defineCheck } from '../check.ts'
import { isOfAgent, type ListFile } from '../facts/lists.ts'
import { shellWord } from '../shell.ts'

/** The runtime takes the first file of the folder by name (libcni, `ConfFiles`), and it is not ours. */
export const check = defineCheck({
  code: 'DR39',
  title: 'the runtime uses another network',
  severity: 'error',
  inAgent: 'part',
  reads: ['lists', 'agent'],
  detect({ lists: { files }, agent }) {
    const at = files.findIndex(({ list }) => list !== undefined && isOfAgent(list))
    const [first, own] = [files[0], files[at]]
    if (!agent || at <= 0 || !first || !own || isMultusOf(first, own)) return []
    const types = (first.list?.plugins ?? []).map(({ type }) => type).join(', ')
    return [
      {
        what: `The runtime takes ${first.path} (${types || 'unusable'}), not ${own.path}: it is first by name`,
        effect: 'new pods are not in the network of this agent',
        commands: [`mv ${shellWord(first.path)} ${shellWord(`${first.path}.off`)}`],
      },
    ]
  },
})

// Multus is first on purpose. It gives each pod its own networks after the network that its file names or contains. One
// that names none has it in the file of its daemon (Multus, docs/configuration.md).
function isMultusOf({ list }: ListFile, own: ListFile): boolean {
  const [plugin] = list?.plugins ?? []
  if (plugin?.type !== 'multus' && plugin?.type !== 'multus-shim') return false
  const { clusterNetwork, delegates } = plugin.conf as { clusterNetwork?: unknown; delegates?: unknown }
  if (typeof clusterNetwork === 'string')
    return clusterNetwork === own.list?.name || basename(clusterNetwork) === basename(own.path)
  const [first] = Array.isArray(delegates) ? (delegates as readonly { readonly name?: unknown }[]) : []
  return first === undefined || first.name === own.list?.name
}
