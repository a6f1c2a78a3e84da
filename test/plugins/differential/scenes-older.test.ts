// lane: longer
// Tests plugins, call by call beside the reference plugins.
import { stagedScenes } from './suite.ts'

stagedScenes(false)
