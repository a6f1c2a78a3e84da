import { SCENES } from '../support/faulty.ts'
import { testRefusals } from '../support/limits.ts'

describe('what the kernel refuses', () => {
  for (const [name, scene] of Object.entries(SCENES)) testRefusals(scene, name)
})
