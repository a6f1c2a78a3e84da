// lane: netns
// Tests lib/os/netlink-answer.ts: what a plugin does when the kernel's answers do not come whole.
import { testAnswers } from '../../../support/answer-walk.ts'

// A sample. test/long has all faults and all verbs.
describe('an answer of the kernel that does not come whole', () => testAnswers('ENOBUFS', ['bridge ADD']))
