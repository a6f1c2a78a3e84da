/** What a package is made of, besides its files below a folder. */
export interface Order {
  readonly identity: Identity
  /** As Debian names it. */
  readonly arch: 'amd64' | 'arm64'
  readonly version: string
  readonly epoch: number
  /** The files as they are once installed. */
  readonly paths: readonly string[]
}

/** What a package says about itself. */
export interface Identity {
  readonly name: string
  readonly summary: string
  /** The lines of the description. */
  readonly about: readonly string[]
  /** Relations to other packages, as lines of Debian's `control` and of an rpm's spec. */
  readonly relations: { readonly deb: readonly string[]; readonly rpm: readonly string[] }
  /** Folders that an rpm owns, with what is in them. dpkg finds them by itself. */
  readonly folders: readonly string[]
  /** The settings, which the administrator changes. */
  readonly settings: readonly string[]
  /** Shell code for after an installation and before a removal. */
  readonly scripts?: { readonly after: string; readonly beforeRemoval: string }
}
