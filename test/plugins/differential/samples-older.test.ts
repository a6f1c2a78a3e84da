// lane: longer
// Tests plugins, call by call beside the reference plugins.
import { sampleScenes } from './suite.ts'

sampleScenes(false)
