import { CHAIN, SCENES, type Scene } from '../faulty.ts'
import { testWalk } from '../walk.ts'

testWalk(CHAIN, SCENES[CHAIN] as Scene)
