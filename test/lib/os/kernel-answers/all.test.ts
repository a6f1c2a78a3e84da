// lane: long
// Tests lib/os/netlink-answer.ts: what plugins do when the kernel's answers do not come.
import { testAnswers } from '../../../support/answer-walk.ts'

describe('an answer of the kernel that does not come', () => {
  for (const name of ['EINTR', 'ENOBUFS', 'ENOMEM']) testAnswers(name)
})
