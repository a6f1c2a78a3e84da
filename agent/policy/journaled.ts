import { entries } from '../../lib/journal/journal.ts'
import type { Endpoint } from './endpoints.ts'

/** The attachments that the journal of the plugins has. An agent that starts knows them before the API answers. */
export function journaled(): Endpoint[] {
  return entries().flatMap(({ parts }) => (parts['policy']?.own ?? []).flatMap((one) => (one.kind === 'admission' ? [one.endpoint] : [])))
}
