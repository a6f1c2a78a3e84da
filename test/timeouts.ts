import { Runnable } from 'mocha'
import { patient } from './support/patience.ts'

// The one way by which each test and hook gets its limit, from its file, its suite or mocha's own option.
const set = Runnable.prototype.timeout as (this: Mocha.Runnable, ms?: string | number) => never
Runnable.prototype.timeout = function timeout(this: Mocha.Runnable, ms?: string | number): never {
  return ms === undefined ? set.call(this) : set.call(this, patient(Number(ms)))
}
