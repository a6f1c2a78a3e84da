import type { Handler, Line } from '../handler.ts'

/** A file in which a reference plugin notes the values that its DEL restores. */
export interface Saved {
  readonly kind: 'saved'
  readonly ns: 'host'
  readonly path: string
  readonly text: string
}

/**
 * Files of the reference plugins. With them the reference plugin's DEL finds what plumb's ADD changed. plumb itself
 * does not need them, so a missing file is no fault.
 */
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
