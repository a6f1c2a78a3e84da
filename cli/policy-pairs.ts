import { writeFileSync } from 'node:fs'
import { setPriority } from 'node:os'
import { answerLines } from '../agent/policy/pair-answers.ts'
import { print } from './output.ts'

/** The agent and the pods come before it. Its nice value (setpriority(2)) still gives it a part of a busy processor. */
const NICE = 5
/** The kernel ends this process first when memory runs out (proc_pid_oom_score_adj(5)). */
const FIRST_TO_GO = '1000'

/**
 * Answers one question of the agent about all pairs of pods: the lines of `linesOf` on standard input, a PairAnswer on
 * standard output. The agent has the processor and the memory before it.
 */
export async function answerPairs(): Promise<number> {
  setPriority(NICE)
  writeFileSync('/proc/self/oom_score_adj', FIRST_TO_GO)
  print(JSON.stringify(await answerLines(await Bun.stdin.text())))
  return 0
}
