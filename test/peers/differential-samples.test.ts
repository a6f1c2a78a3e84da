// lane: peers
// Tests plugins, call by call beside the reference plugins.
import { sampleScenes } from '../differential/suite.ts'

sampleScenes(true)
