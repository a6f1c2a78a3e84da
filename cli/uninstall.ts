/** `plumb uninstall`, as a command of its own. */
export { runUninstall as run } from './install.ts'
