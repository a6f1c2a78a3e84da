import { generated } from '../beside/suite.ts'

generated(true, 2, 3)
