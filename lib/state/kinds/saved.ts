import type { Handler, Line } from '../handler.ts'

/** A file in which a reference plugin notes what its DEL puts back. */
export interface Saved {
  readonly kind: 'saved'
  readonly ns: 'host'
  readonly path: string
  readonly text: string
}

/** Files of the reference plugins, so that their DEL finds what our ADD changed. Ours does without them: one that is missing is no fault. */
export const saved: Handler<Saved> = {
  tool: 'file',
  title: ({ path }) => `file ${path}`,
  purpose,
  key: ({ path }) => `saved ${path}`,
  put: ({ path }) => [{ text: `write ${path}` }],
  drop: ({ path }) => [{ text: `remove ${path}` }],
  ask: () => '',
  read: (_row, want) => want,
}

function purpose({ path }: Saved, _: Line, gone: boolean): string {
  return gone ? `${path} goes` : "what the reference plugin's DEL would put back"
}
