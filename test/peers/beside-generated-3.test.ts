// Tests plugins, call by call beside the reference plugins.
import { generated } from '../beside/suite.ts'

generated(true, 3, 3)
