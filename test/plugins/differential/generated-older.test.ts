// lane: longer
// Tests plugins, call by call beside the reference plugins.
import { generated } from './suite.ts'

generated(false, 1, 1)
