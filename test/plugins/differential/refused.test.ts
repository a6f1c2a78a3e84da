// lane: peers
// Tests plugins, call by call beside the reference plugins.
import { refused } from './scenes.ts'
import { differential, inLane } from './suite.ts'

for (const newer of [true, false]) inLane('refused configurations', newer, (lane) => differential(refused(newer), lane))
