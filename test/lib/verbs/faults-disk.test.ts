// lane: long
// Tests lib/verbs, lib/journal and lib/pools: a disk that fails.
import { testDiskWalk } from '../../support/disk-walk.ts'

// A sample: `npm run test:storm` has all of it.
describe('a disk that fails', () => {
  testDiskWalk('a list in one', { verbs: ['ADD'], errnos: ['ENOSPC'], stays: [false] })
  testDiskWalk('a list in one', { verbs: ['CHECK', 'DEL', 'GC'], errnos: ['ENOSPC'] })
  testDiskWalk('a list', { types: ['tuning'], verbs: ['DEL'], errnos: ['EROFS'], stays: [true] })
  testDiskWalk('host-device', { verbs: ['ADD', 'DEL'], errnos: ['EIO'], stays: [true] })
  testDiskWalk('macvlan', { verbs: ['DEL'], errnos: ['EDQUOT'], stays: [false] })
})
