import { pluginNames } from './plugin-names.ts' with { type: 'macro' }

/** The plugins that this executable is: the files of plugins/ when it was built. To be had by import() alone, as agent/health/page.ts. */
export const PLUGINS: readonly string[] = pluginNames()
