// Tests plugins, call by call beside the reference plugins.
import { refused } from '../beside/scenes.ts'
import { beside, inLane } from '../beside/suite.ts'

for (const newer of [true, false]) inLane('refused configurations', newer, (lane) => beside(refused(newer), lane))
