// The command `plumb uninstall`. Its code is in install.ts.
import type { Entry } from './command.ts'

/** Its row in the list of commands. */
export const entry: Entry = { place: 17, about: 'remove what was installed, and put back what was there before' }

export { runUninstall as run, uninstallGrammar as grammar } from './install.ts'
