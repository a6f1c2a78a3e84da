import { list, status } from './folder.ts'

/** The network's folder cannot be what it was: its file system is not mounted, or another one is. */
export class AwayError extends Error {
  override name = 'AwayError'
}

/** Tells a network's folder from the mount point that is left when its file system is not there: an empty folder is no empty network. */
export class Root {
  readonly #dir: string
  readonly #hasConfig: boolean
  #id: string | undefined

  /** `hasConfig` is false when the network's configuration is elsewhere. */
  constructor(dir: string, hasConfig: boolean) {
    this.#dir = dir
    this.#hasConfig = hasConfig
  }

  /** Throws AwayError when the folder is not the network's; `known` gives names of leases that it had. */
  check(known: () => Iterable<string>): void {
    const stats = status(this.#dir)
    if (this.#hasConfig && !(stats && status(`${this.#dir}/config`))) throw new AwayError(`There is no network configuration at ${this.#dir}/config`)
    if (!stats) throw new AwayError(`There is no folder ${this.#dir}; want it made, or its file system mounted`)
    const id = `${stats.dev}-${stats.ino}`
    if (this.#id !== undefined && this.#id !== id && !this.#holdsAny(known())) throw new AwayError(`${this.#dir} is another folder than before, with none of the leases; want its file system mounted, or the agent started anew`)
    this.#id = id
  }

  // A file system that is mounted again may have another number.
  #holdsAny(known: Iterable<string>): boolean {
    const names = new Set(known)
    return names.size === 0 || list(`${this.#dir}/subnets`).some((name) => names.has(name))
  }
}
