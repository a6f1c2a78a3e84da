/** The command `plumb uninstall`. Its code is in install.ts. */
export { runUninstall as run, uninstallGrammar as grammar } from './install.ts'
