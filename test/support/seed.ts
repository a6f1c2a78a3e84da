import { generator } from './random.ts'

/**
 * The seed of what this test process draws at random: PLUMB_SEED, or another one in each process. A failure prints it, and
 * how to have the same again (test/reporter.ts).
 */
process.env['PLUMB_SEED'] ??= String(Math.floor(Math.random() * 2 ** 31))
/** The seed as a number. */
export const SEED = Number(process.env['PLUMB_SEED'])
/** A number from 0 up to 1, drawn from the seed. */
export const random = generator(SEED)
