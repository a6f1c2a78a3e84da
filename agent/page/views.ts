import { Bgp } from './bgp.tsx'
import { Events } from './events.tsx'
import { Overview } from './overview.tsx'
import { Peers } from './peers.tsx'
import { Pods } from './pods.tsx'
import { Policy } from './policy.tsx'
import { Services } from './services.tsx'
import type { View, ViewProps } from './view.ts'

/** The views of a node's page. Navigation, keys, addresses and docs/status.md come from this table. */
export const VIEWS: readonly View<ViewProps>[] = [
  { key: 'overview', title: 'Overview', asks: ['past'], Show: Overview },
  { key: 'peers', title: 'Peers', problems: 'state:bad', asks: ['past', 'peer'], Show: Peers },
  { key: 'pods', title: 'Pods', problems: 'state:bad', asks: ['pods', 'pod'], hasNames: true, Show: Pods },
  { key: 'policy', title: 'Policy', needs: 'policy', asks: ['policy'], hasNames: true, Show: Policy },
  {
    key: 'services',
    title: 'Services',
    problems: 'state:bad',
    needs: 'services',
    asks: ['services'],
    hasNames: true,
    Show: Services,
  },
  { key: 'bgp', title: 'BGP', problems: 'state:bad', needs: 'bgp', Show: Bgp },
  { key: 'events', title: 'Events', problems: 'tone:bad', asks: ['log'], Show: Events },
]
