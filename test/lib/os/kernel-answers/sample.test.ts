// lane: netns
// Tests lib/os/netlink-answer.ts: what a plugin does when the kernel's answers do not come whole.
import { testAnswers } from '../../../support/answer-walk.ts'

// A sample. The files beside it have all faults and all verbs.
describe('an answer of the kernel that does not come whole', () => testAnswers('ENOBUFS', ['bridge ADD']))
