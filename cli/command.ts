import type { Io } from '../lib/cni/call.ts'
import type { Grammar } from './options.ts'

/** A command of the executable. */
export interface Command {
  readonly about: string
  /**
   * Imports the file of the command only when the user runs it. So no command loads the libraries of another command.
   */
  load(): Promise<{ run(argv: readonly string[], plugin: Io['plugin']): Promise<number>; readonly grammar: Grammar }>
}
