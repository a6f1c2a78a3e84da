// lane: longer
// Tests plugins, call by call beside the reference plugins.
import { stagedScenes } from '../differential/suite.ts'

stagedScenes(false)
