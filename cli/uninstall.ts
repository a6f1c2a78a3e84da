import type { Entry } from './options.ts'
// The command `plumb uninstall`. Its code is in install.ts.

/** Its row in the list of commands. */
export const entry: Entry = { place: 17, about: 'remove what was installed, and put back what was there before' }

/** What runs, and what may follow this command. */
export { runUninstall as run, uninstallGrammar as grammar } from './install.ts'
