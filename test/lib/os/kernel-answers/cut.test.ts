// lane: long
// Tests lib/os/netlink-answer.ts: what plugins do when the kernel's answers come in part.
import { testAnswers } from '../../../support/answer-walk.ts'

describe('an answer of the kernel that does not come whole', () => {
  for (const name of ['ENOBUFS once', 'a message that is cut off', 'a refusal', 'a list that ends with an error'])
    testAnswers(name)
})
