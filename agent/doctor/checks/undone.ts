import { RULE_TOOLS, type Undoer } from '../../kernel/undoer.ts'
import { defineCheck, type SeenFault } from '../check.ts'
import type { Process } from '../facts/processes.ts'

/** Another program undoes what the agent makes, again and again (agent/kernel/fights.ts). */
export const check = defineCheck({
  code: 'DR15',
  title: 'another program undoes what the agent makes',
  severity: 'error',
  reads: ['status', 'processes'],
  detect({ status, processes }) {
    const { what = [], by } = status?.fights ?? {}
    return what.map((sentence): SeenFault => {
      const [, title = sentence] = SENTENCE.exec(sentence) ?? []
      const isOfRules = /nft|iptables/.test(title)
      const culprit = by && isOfRules ? culpritOf(by, processes) : undefined
      const pid = culprit?.pid
      const who =
        culprit === undefined ? 'Another program' : `${culprit.name}${pid === undefined ? '' : ` (pid ${pid})`}`
      const look = isOfRules ? 'nft monitor ruleset' : 'ip monitor link address route neigh'
      return {
        what: `${who} undoes ${title} again and again`,
        effect: 'the agent puts it right after a pause, and until then packets are lost or pass without the rules',
        commands: [pid === undefined ? `timeout 30 ${look} | head -n 40` : `kill ${pid}`],
      }
    })
  },
})

// The program that runs still: the one that the kernel named, or the one that started it as a tool.
function culpritOf(by: Undoer, processes: readonly Process[]): { readonly name: string; readonly pid?: number } {
  const { name, pid } = RULE_TOOLS.test(by.name) ? (by.parent ?? { name: by.name, pid: undefined }) : by
  const named = processes.filter((one) => one.name === name)
  const found = named.find((one) => one.pid === pid) ?? (named.length === 1 ? named[0] : undefined)
  return found ? { name, pid: found.pid } : { name }
}

const SENTENCE = /^(.*) is changed by another program again and again/
