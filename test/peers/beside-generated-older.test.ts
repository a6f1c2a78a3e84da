import { generated } from '../beside/suite.ts'

generated(false, 1, 1)
