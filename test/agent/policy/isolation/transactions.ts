// The transactions of nft on the node of the isolation histories.
import { attributesOf, attributeText } from '../../../../lib/os/netlink-attributes.ts'
import { inside } from '../../../../lib/os/netns.ts'
import { type Listener, listen } from '../../../../lib/os/sockets.ts'
import type { Netns } from '../../../../lib/text/values.ts'

// linux/netfilter/nfnetlink.h and nf_tables.h: the subsystem is in the upper byte of a message's type. The first
// attribute of each message but NEWGEN is the name of the table.
const [SUBSYSTEM, NEWGEN, TABLE] = [10 << 8, 15, 1]
const HEADERS = 20
const ROOM_BYTES = 1 << 24

/** One transaction: when the kernel told of it, by performance.now(), and the tables that it changed. */
export interface Transaction {
  readonly at: number
  readonly tables: ReadonlySet<string>
}

/** Hears of each transaction, as soon as it is in force. */
export class Transactions {
  readonly #listener: Listener
  #tables = new Set<string>()
  #all: Transaction[] = []

  constructor(ns: Netns) {
    this.#listener = inside(ns, () => listen('nft', ROOM_BYTES))
  }

  /** Forgets those so far. */
  clear(): void {
    this.since()
    this.#all = []
  }

  /** Those since the last `clear`. */
  since(): readonly Transaction[] {
    for (const message of this.#listener.messages()) {
      if (message.getUint16(4, true) !== (SUBSYSTEM | NEWGEN)) {
        this.#tables.add(attributeText(attributesOf(message, HEADERS).get(TABLE)))
        continue
      }
      this.#all.push({ at: performance.now(), tables: this.#tables })
      this.#tables = new Set()
    }
    return this.#all
  }

  close(): void {
    this.#listener.close()
  }
}
