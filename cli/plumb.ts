// The entry of the program `plumb`. Bun runs it; the plugins have an executable of their own (plugins/index.ts).
import type { Plugin } from '../lib/cni/plugin.ts'
import { main } from './index.ts'

// The names of the plugin files. The build sets them.
declare const PLUGINS: readonly string[]

process.exitCode = await main(process.argv.slice(2), load)

// In the compiled program this module lies beside the folder plugins.
async function load(name: string): Promise<Plugin | undefined> {
  return PLUGINS.includes(name) ? (await import(`./plugins/${name}.ts`)).default : undefined
}
