import { pause } from '../scheduler/pause.ts'

/** The work takes so small a part of a core, and at most so many wait for it. */
const SHARE = 10
const WAITING = 8

/** Work for readers, one after the other, with pauses: however many ask, it takes a tenth of a core at most. */
export class Turns {
  #last: Promise<void> = Promise.resolve()
  #waiting = 0

  /** Does the work when it is its turn. Undefined at once when too many wait already. Rejects with the error of the work. */
  take<T>(work: () => T | Promise<T>): Promise<T> | undefined {
    if (this.#waiting >= WAITING) return undefined
    this.#waiting++
    const { promise, resolve, reject } = Promise.withResolvers<T>()
    this.#last = this.#last.then(async () => {
      this.#waiting--
      const begun = performance.now()
      try {
        resolve(await work())
      } catch (cause) {
        reject(cause)
      }
      await pause((SHARE - 1) * (performance.now() - begun), new AbortController().signal)
    })
    return promise
  }
}
