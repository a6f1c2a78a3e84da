import { pluginNames } from './bundle.ts' with { type: 'macro' }

/** The plugins that this executable is: the files of plugins/ when it was built. To be had by import() alone, as agent/page.ts. */
export const PLUGINS: readonly string[] = pluginNames()
