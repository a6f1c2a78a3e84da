// lane: netns
// Tests lib/verbs: what an ADD leaves when a step fails.
import { testWalk } from '../../support/fault-walk.ts'
import { CHAIN, SCENES, type Scene } from '../../support/plugin-scenes.ts'

testWalk(CHAIN, SCENES[CHAIN] as Scene)
