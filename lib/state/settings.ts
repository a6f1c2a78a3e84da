import type { IfName, Mac, Netns } from '../text/values.ts'

/** What a link can be told, whoever made it. What is undefined is left as it is and not compared. */
export interface Settings {
  readonly mac?: Mac
  readonly mtu?: number
  readonly txQLen?: number
  readonly promisc?: boolean
  readonly allmulti?: boolean
  /** The link that it is a port of; empty: of none. */
  readonly master?: IfName | ''
}

/** Settings of a link that another made. */
export interface Setting extends Settings {
  readonly kind: 'setting'
  readonly ns: Netns
  readonly dev: IfName
  /** What of it was otherwise: put back when it is dropped. */
  readonly before?: Settings
}

/** A file in which a reference plugin notes what its DEL puts back. */
export interface Saved {
  readonly kind: 'saved'
  readonly ns: 'host'
  readonly path: string
  readonly text: string
}
