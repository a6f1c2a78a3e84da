import type { Handler, Zoned } from '../resource.ts'

/** A source of a zone of firewalld. */
export const zoned: Handler<Zoned> = {
  tool: 'firewalld',
  key: ({ zone, source }) => `zoned ${zone} ${source}`,
  put: ({ zone, source }) => [{ text: `addSource ${zone} ${source}` }],
  drop: ({ zone, source }) => [{ text: `removeSource ${zone} ${source}` }],
  ask: ({ zone, source }) => `querySource ${zone} ${source}`,
  read: (_row, want) => want,
}
