// lane: peers
// Tests plugins, call by call beside the reference plugins.
import { stagedScenes } from '../differential/suite.ts'

stagedScenes(true)
