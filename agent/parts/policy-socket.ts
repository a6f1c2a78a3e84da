import { commands, listen } from '../../lib/os/answers.ts'
import { keepSocket } from '../node/socket.ts'
import { admissionCommands } from '../policy/admission.ts'
import { policyCommands } from '../policy/questions.ts'
import type { PartSet } from './make.ts'

/**
 * Answers the plugin `policy` and `plumb policy` on a socket until stopped. The first time it listens, the part takes the
 * attachments of the journal. Undefined when policy is off. Throws as `keepSocket`.
 */
export async function answerPolicy(
  path: string | undefined,
  { policy, services }: Pick<PartSet, 'policy' | 'services'>,
): Promise<{ stop(): void } | undefined> {
  if (path === undefined || !policy) return undefined
  const handlers = {
    ...admissionCommands(policy.attachments),
    ...policyCommands(policy.answers, (ip, protocol, port) => services?.translate(ip, protocol, port)),
  }
  let isRestored = false
  return keepSocket(path, () => {
    const questions = listen({ unix: path }, 'policy', commands('command', handlers))
    if (!isRestored) policy.restore()
    isRestored = true
    return questions
  })
}
