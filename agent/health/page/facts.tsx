import type { ComponentChildren } from 'preact'
import { span, stepWords, storeWords } from '../phrases.ts'
import { drift, total, unreachable } from '../reachability.ts'
import type { Status } from '../status.ts'

/** The main facts about the node. `now` is by the agent's clock. */
export function Facts({ status, now }: { status: Status; now: number }) {
  const { subnets, network, backend, mtu, uplink, store, peers, kinds, steps, started, unreadable } = status
  const lost = unreachable(peers).length
  const { wanted, repaired } = total(kinds)
  const off = drift(kinds)
  const all = peers.every(({ probe }) => probe?.state === 'answers') ? 'all reachable' : 'all programmed'
  return (
    <dl class="facts">
      <Fact name="Pods of this node" value={<Both of={subnets} />}>
        of <Both of={network} />
      </Fact>
      <Fact name="Peers" value={peers.length} tone={lost > 0 || unreadable > 0 ? 'bad' : ''}>
        {lost > 0 ? `${lost} unreachable` : peers.length === 0 ? 'none yet' : all}
        {unreadable > 0 && `, ${unreadable} more that cannot be read`}
      </Fact>
      <Fact name="Store" value={store.name} tone={store.connected ? '' : 'bad'}>
        {store.connected && store.heard !== undefined
          ? `connected, heard of ${span(now - store.heard)} ago`
          : storeWords({ store, started }, now)}
      </Fact>
      <Fact name="Kernel objects" value={wanted} tone={off > 0 ? 'warn' : ''}>
        {off > 0 ? `${off} not as wanted` : 'all as wanted'}, {repaired} repaired
      </Fact>
      <Fact name="Backend" value={backend}>
        pods’ MTU {mtu}
        {steps.count > 0 && <span>; steps: {stepWords(steps)}</span>}
      </Fact>
      <Fact name="Uplink" value={uplink?.name ?? 'none'} tone={uplink ? '' : 'bad'}>
        {uplink && <span title={uplink.why}>{uplink.why}</span>}
      </Fact>
    </dl>
  )
}

interface FactProps {
  name: string
  value: ComponentChildren
  tone?: '' | 'warn' | 'bad'
  children?: ComponentChildren
}

function Fact({ name, value, tone = '', children }: FactProps) {
  return (
    <div class={`fact ${tone}`}>
      <dt>{name}</dt>
      <dd class="value">{value}</dd>
      <dd>{children}</dd>
    </div>
  )
}

/** Shows the values of both address families, in one line if there is enough space. */
export function Both({ of: { v4, v6 } }: { of: { readonly v4?: string; readonly v6?: string } }) {
  if (!v4 && !v6) return <>–</>
  return (
    <span class="both">
      {v4 && <code>{v4}</code>} {v6 && <code>{v6}</code>}
    </span>
  )
}
