import { list, status } from './folder.ts'

/** The folder is not the folder of the network. Its file system is not mounted, or another file system is mounted. */
export class AwayError extends Error {
  override name = 'AwayError'
}

/**
 * Tells the folder of a network from the empty mount point that remains without its file system. An empty folder does
 * not mean an empty network.
 */
export class Root {
  readonly #dir: string
  readonly #hasConfig: boolean
  #id: string | undefined

  /** `hasConfig` is false when the configuration of the network is in another place. */
  constructor(dir: string, hasConfig: boolean) {
    this.#dir = dir
    this.#hasConfig = hasConfig
  }

  /** Throws AwayError when the folder is not the folder of the network. `known` has keys of leases that it had. */
  check(known: () => Iterable<string>): void {
    const stats = status(this.#dir)
    if (this.#hasConfig && !(stats && status(`${this.#dir}/config`)))
      throw new AwayError(`There is no network configuration at ${this.#dir}/config`)
    if (!stats) throw new AwayError(`There is no folder ${this.#dir}; want it made, or its file system mounted`)
    const id = `${stats.dev}-${stats.ino}`
    if (this.#id !== undefined && this.#id !== id && !this.#holdsAny(known())) {
      const want = 'want its file system mounted, or the agent started again'
      throw new AwayError(`${this.#dir} is another folder than before, with none of the leases; ${want}`)
    }
    this.#id = id
  }

  // A file system that is mounted again may have another device number, so the leases decide.
  #holdsAny(known: Iterable<string>): boolean {
    const names = new Set(known)
    return names.size === 0 || list(`${this.#dir}/subnets`).some((name) => names.has(name))
  }
}
