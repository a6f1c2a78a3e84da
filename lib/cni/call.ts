// This folder is the CNI protocol: environment, configuration, results, spec versions, and the interface of a plugin.
// Begin with plugin.ts. Then read call.ts and result.ts.
import type { Run } from '../os/run.ts'
import type { Command, Env } from './environment.ts'
import type { Attachment, Plugin } from './plugin.ts'

/**
 * The outside world of one call: environment, standard input and the answer. Standard input is read at most once. It
 * also starts programs and finds other plugins of this executable.
 */
export interface Io {
  readonly env: Env
  stdin(): string
  /** Writes the whole answer or throws. */
  answer(text: string): void
  readonly run: Run
  /** A plugin of this executable, by type. Undefined when there is none of that type. */
  plugin(type: string): Promise<Plugin | undefined>
  /** Whether a program file is plumb of this version. Absent: only the running executable is. */
  isOurs?(file: string): boolean
}

/** The part of a call that is the same for every plugin. */
export interface Call {
  readonly command: Command
  readonly at: Attachment
  /** Standard input, unchanged for delegates. `raw` is the parsed form. */
  readonly text: string
  readonly raw: Readonly<Record<string, unknown>>
  readonly version: string
  readonly io: Io
}

/**
 * The outcome of a verb. `text` is its answer. `delivered` runs after the answer is delivered. `undo` runs when it
 * cannot be delivered.
 */
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
