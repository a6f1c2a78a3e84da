import { generated } from '../beside/suite.ts'

generated(true, 3, 3)
