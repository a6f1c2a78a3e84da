import type { Check } from '../check.ts'
import { shellWord } from '../shell.ts'

/** The runtime takes the first file of the folder by name (libcni, `ConfFiles`), and it is not ours. */
export const check: Check = {
  code: 'DR39',
  title: 'the runtime uses another network',
  severity: 'error',
  detect({ lists: { files }, agent }) {
    const isOurs = (types: readonly string[]) => types.includes('flannel')
    const typesOf = (index: number) => (files[index]?.list?.plugins ?? []).map(({ type }) => type)
    const at = files.findIndex((_, i) => isOurs(typesOf(i)))
    const [first] = files
    if (!agent || at <= 0 || !first) return []
    const own = files[at]?.path
    return [
      {
        what: `The runtime takes ${first.path} (${typesOf(0).join(', ') || 'unusable'}), not ${own}: it is first by name`,
        effect: 'new pods are not in the network of this agent',
        commands: [`mv ${shellWord(first.path)} ${shellWord(`${first.path}.off`)}`],
      },
    ]
  },
}
