// lane: peers
// Tests plugins, call by call beside the reference plugins.
import { generated } from './suite.ts'

generated(true, 2, 3)
