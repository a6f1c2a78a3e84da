/** What a package is made of, besides its files below a folder. */
export interface Order {
  /** As Debian names it. */
  readonly arch: 'amd64' | 'arm64'
  readonly version: string
  readonly epoch: number
  /** The files as they are once installed. */
  readonly paths: readonly string[]
}
