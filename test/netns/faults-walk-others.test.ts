import { CHAIN, SCENES } from '../faulty.ts'
import { testWalk } from '../walk.ts'

for (const [name, scene] of Object.entries(SCENES)) if (name !== CHAIN) testWalk(name, scene)
