import { stagedScenes } from '../beside/suite.ts'

stagedScenes(false)
