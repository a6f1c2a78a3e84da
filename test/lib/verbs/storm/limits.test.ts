// lane: storm
// Tests lib/verbs, lib/journal and lib/pools under storms of calls.
import { testRefusals } from '../../../support/kernel-limits.ts'
import { SCENES } from '../../../support/plugin-scenes.ts'

describe('what the kernel refuses', () => {
  for (const [name, scene] of Object.entries(SCENES)) testRefusals(scene, name)
})
