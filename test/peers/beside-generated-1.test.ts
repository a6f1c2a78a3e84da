import { generated } from '../beside/suite.ts'

generated(true, 1, 3)
