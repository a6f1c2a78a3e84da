// lane: long
// Tests lib/os/netlink-answer.ts: what plugins do when the kernel says nothing.
import { testAnswers } from '../../../support/answer-walk.ts'

describe('an answer of the kernel that is empty', () => {
  for (const name of ['no answer', 'an empty answer']) testAnswers(name)
})
