import type { Run } from '../os/run.ts'
import type { Command, Env } from './environment.ts'
import type { Attachment, Plugin } from './plugin.ts'

/** The world of one call: environment, standard input (read at most once), where the answer goes, and how programs and other plugins of this executable are started. */
export interface Io {
  readonly env: Env
  stdin(): string
  /** Writes the whole answer or throws. */
  answer(text: string): void
  readonly run: Run
  /** A plugin of this executable by its type, undefined when it has none of that name. */
  plugin(type: string): Promise<Plugin | undefined>
  /** Whether a program is plumb's, of this version; when left out, the one file that runs is. */
  isOurs?(file: string): boolean
}

/** One call, as far as it is the same for every plugin. */
export interface Call {
  readonly command: Command
  readonly at: Attachment
  /** Standard input as it came, for delegates, and parsed. */
  readonly text: string
  readonly raw: Readonly<Record<string, unknown>>
  readonly version: string
  readonly io: Io
}

/** What a verb came to: its answer, and what has to follow once that is delivered, or cannot be. */
export interface Done {
  readonly text?: string
  delivered?(): void
  undo?(): Promise<void>
}

/** The verbs of a role. */
export interface Verbs {
  add(call: Call): Promise<Done>
  check(call: Call): Promise<void>
  del(call: Call): Promise<void>
  gc(call: Call): Promise<void>
  status(call: Call): Promise<void>
}
