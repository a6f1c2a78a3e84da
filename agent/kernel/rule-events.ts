import { closeSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'
import { readPiece } from '../../lib/os/netlink-answer.ts'
import { attributesOf, attributeText } from '../../lib/os/netlink-attributes.ts'
import { listen } from '../../lib/os/sockets.ts'
import { tidy } from '../node/garbage.ts'
import type { Program } from './undoer.ts'

/** One change in an nft table. Another program or the agent itself may have made it. */
export interface RuleChange {
  /** The family of the table. Undefined for families other than `ip`, `ip6` and `inet`. */
  readonly family: 'ip' | 'ip6' | 'inet' | undefined
  readonly table: string
  readonly what: 'table' | 'chain' | 'rule' | 'other'
  /** The name of the chain, for a change of a chain or a rule. */
  readonly chain?: string
  /** The object no longer exists. */
  readonly gone: boolean
}

/** The receiver of changes. */
export interface RuleListener {
  changed(change: RuleChange): void
  /** Called after the changes of a transaction, with the program that made it. */
  made?(program: Program): void
  /** Called when earlier changes are unknown. Listening has begun, or the kernel had no room for messages. */
  lost(): void
  /** Called with the reason when listening fails, and with undefined when it works. */
  failing(why: string | undefined): void
}

// Constants of linux/netlink.h, linux/netfilter/nfnetlink.h and linux/netfilter/nf_tables.h. struct nlmsghdr and struct
// nfgenmsg come before the attributes.
const [NLMSG_HEADER, HEADERS, SUBSYSTEM] = [16, 20, 10]
// Every object has the name of its table in attribute 1. A chain has its own name in attribute 3, and a rule has its
// chain in attribute 2.
const TABLE_NAME = 1
type ObjectType = Pick<RuleChange, 'what' | 'gone'> & { readonly chain?: number }
const OBJECTS: Readonly<Record<number, ObjectType>> = {
  0: { what: 'table', gone: false },
  2: { what: 'table', gone: true },
  3: { what: 'chain', gone: false, chain: 3 },
  5: { what: 'chain', gone: true, chain: 3 },
  6: { what: 'rule', gone: false, chain: 2 },
  8: { what: 'rule', gone: true, chain: 2 },
  9: { what: 'other', gone: false },
  11: { what: 'other', gone: true },
  12: { what: 'other', gone: false },
  14: { what: 'other', gone: true },
  18: { what: 'other', gone: false },
  20: { what: 'other', gone: true },
  22: { what: 'other', gone: false },
  24: { what: 'other', gone: true },
}
// NFT_MSG_NEWGEN ends a transaction: the process in network order, and its name.
const [NEW_GENERATION, PROCESS, PROCESS_NAME] = [15, 2, 3]
const FAMILIES: Readonly<Record<number, 'ip' | 'ip6' | 'inet'>> = { 1: 'inet', 2: 'ip', 10: 'ip6' }

/**
 * Calls `changed` for each change in a piece of the kernel's messages, and `made` after those of a transaction. False when
 * the piece is cut off or invalid. Pure.
 */
export function readChanges(
  piece: Uint8Array,
  changed: (change: RuleChange) => void,
  made?: (program: Program) => void,
): boolean {
  const messages: DataView[] = []
  const end = readPiece(new DataView(piece.buffer, piece.byteOffset, piece.byteLength), true, messages)
  for (const message of messages) {
    if (message.byteLength < HEADERS) continue
    const type = message.getUint16(4, true)
    if (made && type === ((SUBSYSTEM << 8) | NEW_GENERATION)) {
      const told = attributesOf(message, HEADERS)
      const pid = told.get(PROCESS)
      if (pid?.byteLength === 4) made({ pid: pid.getUint32(0), name: attributeText(told.get(PROCESS_NAME)) })
    }
    const object = type >> 8 === SUBSYSTEM ? OBJECTS[type & 0xff] : undefined
    if (object === undefined) continue
    const attributes = attributesOf(message, HEADERS)
    const { what, gone } = object
    const family = FAMILIES[message.getUint8(NLMSG_HEADER)]
    const table = attributeText(attributes.get(TABLE_NAME))
    const chain = object.chain === undefined ? {} : { chain: attributeText(attributes.get(object.chain)) }
    changed({ family, table, what, ...chain, gone })
  }
  return typeof end !== 'string'
}

/** The size of the receive buffer. A load of ten thousand elements by another program takes one megabyte. */
const ROOM_BYTES = 1 << 22
/** After this many bytes the garbage is collected. They leave some megabytes behind. */
const BURST = 1 << 18
const REST_MS = 5
const [FIRST_MS, LONGEST_PAUSE_MS] = [100, 5000]

/**
 * Listens to the kernel's messages about nft rules (the group of `nft monitor`) until the signal. Never throws. It does
 * not use `nft monitor`. That tool keeps every set of every program in memory, and continues silently after lost
 * messages.
 */
export async function followRules(
  listener: RuleListener,
  signal: AbortSignal,
  log: (text: string) => void,
): Promise<void> {
  let logged = ''
  for (let pause = FIRST_MS; !signal.aborted; pause = Math.min(pause * 2, LONGEST_PAUSE_MS)) {
    const why = await hear(listener, signal)
    if (signal.aborted) return
    if (why === 'ENOBUFS') [pause, logged] = [FIRST_MS, '']
    else {
      listener.failing(`Cannot listen to nft, so that changes go unnoticed: ${why}`)
      if (why !== logged) log(`agent: Cannot listen to nft, trying again: ${why}`)
      logged = why
    }
    await sleep(pause, undefined, { signal }).catch(() => undefined)
  }
}

// Gives the reason for its end. It is the error's code if there is one.
async function hear({ changed, made, lost, failing }: RuleListener, signal: AbortSignal): Promise<string> {
  let fd = -1
  try {
    ;({ fd } = listen('nft', ROOM_BYTES))
    const reader = Bun.file(fd).stream().getReader()
    const end = () => void reader.cancel()
    signal.addEventListener('abort', end)
    try {
      lost()
      failing(undefined)
      for (let taken = 0; ; ) {
        const { value } = await reader.read()
        if (value === undefined) return 'the socket ended'
        if (!readChanges(value, changed, made)) lost()
        taken += value.length
        if (taken >= BURST) tidy(taken)
        if (taken >= BURST) taken = 0
        // After a pause, a burst is read in few large pieces.
        await Bun.sleep(REST_MS)
      }
    } finally {
      signal.removeEventListener('abort', end)
    }
  } catch (cause) {
    return (cause as NodeJS.ErrnoException).code ?? (cause as Error).message
  } finally {
    if (fd >= 0) closeSync(fd)
  }
}
