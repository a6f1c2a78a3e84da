// lane: storm
// Tests lib/verbs, lib/journal and lib/pools: a disk that fails.
import { DISK_SCENES, testDiskWalk } from '../../../support/disk-walk.ts'

describe('a disk that fails', () => {
  for (const name of Object.keys(DISK_SCENES)) testDiskWalk(name)
})
