import { bundle } from './bundle.ts' with { type: 'macro' }

/**
 * The files of the status page for browsers. The macro makes them while Bun builds the executable. Load this module
 * only with import(). Mocha loads tests with require(), and Bun 1.4 hangs on a macro in a required module.
 */
export const page: { readonly html: string; readonly js: string; readonly css: string; readonly icon: string } =
  bundle('agent/page/main.tsx')
