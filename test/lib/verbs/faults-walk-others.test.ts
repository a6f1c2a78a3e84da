// lane: netns
// Tests lib/verbs: what an ADD leaves when a step fails.
import { testWalk } from '../../support/fault-walk.ts'
import { CHAIN, SCENES } from '../../support/plugin-scenes.ts'

for (const [name, scene] of Object.entries(SCENES)) if (name !== CHAIN) testWalk(name, scene)
