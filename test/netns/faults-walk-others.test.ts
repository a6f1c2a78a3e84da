import { CHAIN, SCENES } from '../support/faulty.ts'
import { testWalk } from '../support/walk.ts'

for (const [name, scene] of Object.entries(SCENES)) if (name !== CHAIN) testWalk(name, scene)
