import type { ComponentChild } from 'preact'
import type { ReaderState } from '../state/messages.ts'
import type { PageAddress } from './address.ts'
import type { Go } from './hooks.ts'

/** A view of a page. The table of a page is a list of them, in the order of their keys, 1 to 9. */
export interface View<Props> {
  /** The word in the address, and the class of the page's main part. */
  readonly key: string
  readonly title: string
  /** The word of its search that leaves problems only. Absent when it has none. */
  readonly problems?: string
  /** The part of the status that it shows. Without that part, the view is not there. */
  readonly needs?: 'policy' | 'services' | 'bgp'
  /** The lists that it asks the server for. All else comes with the messages. */
  readonly asks?: readonly string[]
  /** Names of pods, namespaces, policies or Services are all that it shows. A redacted status has nothing for it. */
  readonly hasNames?: true
  readonly Show: (props: Props) => ComponentChild
}

/** What a view of a node's page needs. `now` is by the agent's clock. */
export interface ViewProps {
  known: ReaderState
  place: PageAddress
  go: Go
  now: number
}
