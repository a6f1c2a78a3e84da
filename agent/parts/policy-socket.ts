import { commands, listen } from '../../lib/os/answers.ts'
import { keepSocket } from '../node/socket.ts'
import { admissionCommands } from '../policy/admission.ts'
import { policyCommands } from '../policy/questions.ts'
import type { PolicyPart } from './policy.ts'
import type { ServicesPart } from './services.ts'

/**
 * Answers the plugin `policy` and `plumb policy` on a socket until stopped. The first time it listens, the part takes the
 * attachments of the journal. Throws as `keepSocket`.
 */
export function answerPolicy(
  path: string,
  policy: PolicyPart,
  services: ServicesPart | undefined,
): Promise<{ stop(): void }> {
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
