import { pagesOf } from './read.ts' with { type: 'macro' }

/** The pages as they were when the executable was built. To be had by import() alone, as agent/page/index.ts. */
export const pages: Readonly<Record<string, string>> = pagesOf()
