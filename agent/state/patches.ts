// Finds what differs from one status to the next, for the readers of `/events`.
import { type Base, NEWEST, type Patch, type Whole } from './messages.ts'
import type { Recorder } from './recorder.ts'
import { changed, columnsOf, type Row } from './rows.ts'
import type { Status } from './status.ts'

/** The last patches are kept for readers that were away, at most so many and of so many characters. */
const KEPT = 256
const KEPT_LENGTH = 2_000_000

/** A message as it is sent. `id` is `EPOCH.N`. */
export interface Message {
  readonly event: 'whole' | 'patch'
  readonly id: string
  readonly data: string
}

/** The state that readers have, and the last patches. `EPOCH` differs after a restart of the agent. */
export class Patches {
  readonly #recorder: Recorder
  readonly #epoch: string
  #n = 0
  #rows = new Map<number, Row>()
  #status = new Map<string, string>()
  #patches: Message[] = []
  #length = 0

  constructor(recorder: Recorder, epoch = Date.now().toString(36)) {
    this.#recorder = recorder
    this.#epoch = epoch
  }

  /** The id of the last message. */
  get id(): string {
    return `${this.#epoch}.${this.#n}`
  }

  /** Takes a status in. Returns the patch since the one before. Undefined when nothing differs. */
  take(status: Status): Message | undefined {
    const rows = this.#recorder.record(status)
    const patch: Patch = { at: this.#recorder.now, ...this.#base(status), ...this.#peers(rows), ...this.#happenings() }
    if (Object.keys(patch).length === 1) return undefined
    this.#n++
    const message: Message = { event: 'patch', id: this.id, data: JSON.stringify(patch) }
    this.#patches.push(message)
    this.#length += message.data.length
    while (this.#patches.length > KEPT || this.#length > KEPT_LENGTH)
      this.#length -= this.#patches.shift()?.data.length ?? 0
    return message
  }

  /** Everything, as it was taken in last. */
  whole(): Message {
    const status = Object.fromEntries([...this.#status].map(([key, text]) => [key, JSON.parse(text)])) as Base
    const peers = columnsOf([...this.#rows.values()])
    const happenings = this.#recorder.happenings(NEWEST)
    const whole: Whole = { at: this.#recorder.now, status, peers, happenings }
    return { event: 'whole', id: this.id, data: JSON.stringify(whole) }
  }

  /** The patches since a message that a reader has. Undefined when they are no longer known: it needs the whole. */
  since(id: string): readonly Message[] | undefined {
    if (id === this.id) return []
    const at = this.#patches.findIndex((one) => one.id === id)
    if (at >= 0) return this.#patches.slice(at + 1)
    const [epoch, n] = [id.replace(/\.\d+$/, ''), Number(/\.(\d+)$/.exec(id)?.[1])]
    const isBeforeFirst = epoch === this.#epoch && n === this.#n - this.#patches.length
    return isBeforeFirst ? this.#patches : undefined
  }

  #base({ peers, repairs, ...base }: Status): Pick<Patch, 'status'> {
    const now = new Map<string, string>()
    for (const [key, value] of Object.entries(base)) if (value !== undefined) now.set(key, JSON.stringify(value))
    const others: Record<string, unknown> = {}
    for (const [key, text] of now) if (this.#status.get(key) !== text) others[key] = base[key as keyof typeof base]
    for (const key of this.#status.keys()) if (!now.has(key)) others[key] = null
    this.#status = now
    return Object.keys(others).length > 0 ? { status: others } : {}
  }

  #peers(rows: ReadonlyMap<string, Row>): Pick<Patch, 'peers' | 'gone'> {
    const now = new Map<number, Row>()
    for (const row of rows.values()) now.set(row.n, row)
    const peers = changed([...now.values()], (n) => this.#rows.get(n))
    const gone = [...this.#rows.keys()].filter((n) => !now.has(n))
    this.#rows = now
    return { ...(peers && { peers }), ...(gone.length > 0 && { gone }) }
  }

  #happenings(): Pick<Patch, 'happenings'> {
    const happenings = this.#recorder.changes()
    return happenings.length > 0 ? { happenings } : {}
  }
}
