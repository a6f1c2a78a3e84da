// Tests plugins, call by call beside the reference plugins.
import { stagedScenes } from '../beside/suite.ts'

stagedScenes(false)
