import { bundle } from './page/bundle.ts' with { type: 'macro' }

/** What a browser gets: the status page, made while the executable is built. To be had by import() alone: mocha loads tests by require(), and Bun 1.4 waits forever for a macro below one. */
export const page: { readonly html: string; readonly js: string; readonly css: string; readonly icon: string } = bundle()
