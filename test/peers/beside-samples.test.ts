import { sampleScenes } from '../beside/suite.ts'

sampleScenes(true)
