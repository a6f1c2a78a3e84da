import { SCENES } from '../faulty.ts'
import { testRefusals } from '../limits.ts'

describe('what the kernel refuses', () => {
  for (const [name, scene] of Object.entries(SCENES)) testRefusals(scene, name)
})
