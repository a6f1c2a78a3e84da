// Tests plugins, call by call beside the reference plugins.
import { sampleScenes } from '../beside/suite.ts'

sampleScenes(true)
