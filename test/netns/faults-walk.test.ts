import { CHAIN, SCENES, type Scene } from '../support/faulty.ts'
import { testWalk } from '../support/walk.ts'

testWalk(CHAIN, SCENES[CHAIN] as Scene)
