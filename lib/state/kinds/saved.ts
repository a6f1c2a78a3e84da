import type { Handler } from '../resource.ts'
import type { Saved } from '../settings.ts'

/** Files of the reference plugins, so that their DEL finds what our ADD changed. Ours does without them: one that is missing is no fault. */
export const saved: Handler<Saved> = {
  tool: 'file',
  key: ({ path }) => `saved ${path}`,
  put: ({ path }) => [{ text: `write ${path}` }],
  drop: ({ path }) => [{ text: `remove ${path}` }],
  ask: () => '',
  read: (_row, want) => want,
}
