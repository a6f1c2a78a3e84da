import { SOCKET } from '../lib/nft/admission.ts'
import { question } from '../lib/os/ask.ts'
import { CniError, ValueError } from '../lib/text/errors.ts'
import type { Given } from './options.ts'

/** The limit for the agent's silence, in milliseconds. */
const QUIET_MS = 5000
const ADVICE = 'it listens with --network-policy; start it: systemctl start plumb-agent'

/**
 * Asks the agent of this node about network policy (agent/policy/questions.ts). Throws ValueError when no agent
 * answers, and when it refuses.
 */
export function askPolicy<Reply extends object>(
  asked: object,
  { 'policy-socket': socket = SOCKET }: Given['values'],
): Reply {
  try {
    return question<Reply>({ socket, name: 'the agent for network policy', advice: ADVICE }, asked, QUIET_MS)()
  } catch (cause) {
    if (!(cause instanceof CniError)) throw cause
    throw new ValueError([cause.message, cause.details].filter(Boolean).join('; '), { cause })
  }
}
