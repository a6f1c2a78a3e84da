import { bundle } from '../../agent/page/bundle.ts' with { type: 'macro' }

/**
 * The files of the page of a fleet. The macro makes them while Bun builds the executable. Load this module only with
 * import(). Mocha loads tests with require(), and Bun 1.4 hangs on a macro in a required module.
 */
export const page: { readonly html: string; readonly js: string; readonly css: string; readonly icon: string } =
  bundle('cli/fleet/page/main.tsx')
