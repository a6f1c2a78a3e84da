import { pluginNames } from './plugin-names.ts' with { type: 'macro' }

/** The plugins of this executable: the files of plugins/ at build time. Load this file only with import(), like agent/health/page.ts. */
export const PLUGINS: readonly string[] = pluginNames()
