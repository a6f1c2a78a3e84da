import * as v from 'valibot'
import { type Command, command } from '../../lib/os/answers.ts'
import { field } from '../../lib/text/shape.ts'
import type { Comparison } from './comparison.ts'
import type { DraftTexts } from './snapshot.ts'
import { decision, detail, type PolicyKnowledge, podsOfOthers, summaries, type Translate } from './view.ts'

// The questions of `plumb policy` on the agent's policy socket.

const list = v.object({ command: field.text })
const show = v.object({ command: field.text, pod: field.text })
const others = v.object({ command: field.text, most: field.int(1, 100) })
// The command has read the text. The agent does not read YAML for it.
const compare = v.object({ command: field.text, documents: v.array(v.unknown()) })
const decideShape = v.object({
  command: field.text,
  from: field.text,
  to: field.text,
  protocol: v.picklist(['TCP', 'UDP', 'SCTP', 'ICMP']),
  /** 0 for ICMP. */
  port: field.int(0, 65_535),
})

/** What answers the questions. `known` throws CniError 11 while the objects of the cluster are not known. */
export interface Answering {
  known(): PolicyKnowledge
  /** Throws as `known`, NoAnswerError, and ValueError for wrong policies and too much work. */
  comparison(drafts: DraftTexts): Promise<Comparison>
}

/**
 * The commands of `plumb policy`, for the table of `commands` (lib/os/answers.ts). `translate` knows the Services,
 * where they are served.
 */
export function policyCommands(of: Answering, translate?: Translate): Readonly<Record<string, Command>> {
  return {
    list: command(list, async () => ({ pods: summaries(of.known()) })),
    others: command(others, async ({ most }) => ({ nodes: podsOfOthers(of.known(), most) })),
    show: command(show, async ({ pod }) => detail(of.known(), pod)),
    compare: command(compare, async ({ documents }) => of.comparison({ documents })),
    decide: command(decideShape, async ({ command: _, ...asked }) => decision(of.known(), asked, translate)),
  }
}
