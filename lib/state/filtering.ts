import type { PartName } from '../journal/journal.ts'
import type { Ip } from '../text/ip.ts'
import type { Netns } from '../text/values.ts'

/** An element of a set or map of lib/nft/sets.nft. `owner` becomes its comment. */
export interface Element {
  readonly kind: 'element'
  readonly ns: Netns
  readonly set: string
  readonly key: string
  readonly value?: string
  readonly owner: string
  /** Its set forgets it after a moment: it is added when what it belongs to is made, or when that is removed, and never looked for. */
  readonly moment?: 'made' | 'removed'
  /** Whose it is, for one that several attachments may have at once: it goes with the last of them. */
  readonly part?: PartName
}

/** A host port that belongs to one attachment: `ip` is an address of the node, or any4 or any6. `record` is the path of its owner's record. */
export interface Claim {
  readonly kind: 'claim'
  readonly ns: 'host'
  readonly protocol: string
  readonly port: number
  readonly ip: string
  readonly part: PartName
}

/** UDP connections to a host port that the kernel still remembers: forgotten whenever the port changes hands, else datagrams go on to the old target. `ip` is the address of the node, absent for all; `pod` is where the port leads. */
export interface Flows {
  readonly kind: 'flows'
  readonly ns: 'host'
  readonly family: 4 | 6
  readonly port: number
  readonly ip?: Ip
  readonly pod: Ip
}

/** A chain of a network, for rules of its own; its elements lead there. */
export interface Chain {
  readonly kind: 'chain'
  readonly ns: Netns
  readonly name: string
  readonly rules: readonly string[]
  /** Its rules are somebody else's: it is only made. */
  readonly kept?: true
}
