import { useEffect, useState } from 'preact/hooks'
import { span } from '../phrases.ts'
import type { Status } from '../status.ts'
import { Bgp } from './bgp.tsx'
import { Drift } from './drift.tsx'
import { Facts } from './facts.tsx'
import { type Seen, useAgent, useNow } from './hooks.ts'
import { Peers } from './peers.tsx'
import { Picture } from './picture.tsx'
import { Policy } from './policy.tsx'
import { Repairs } from './repairs.tsx'
import { Services } from './services.tsx'

/**
 * The status page. This folder has the sources of the page. Begin to read here.
 * All URLs are relative, so that the page also works under the path of a proxy.
 */
export function App() {
  const seen = useAgent('events')
  const now = useNow()
  const [search, setSearch] = useState('')
  const { status, lost, aheadMs, history } = seen
  useTitle(seen)
  if (!status)
    return (
      <p class="empty">
        {lost === undefined
          ? 'Asking the agent…'
          : `The agent does not answer; asking again. Tried for ${span(now - lost)}.`}
      </p>
    )
  const there = now + aheadMs
  return (
    <>
      <Head status={status} lost={lost} now={there} />
      {lost !== undefined && (
        <p class="lost" aria-hidden="true">
          <b>Connection lost</b> {span(now - lost)} ago. What you see is how it was then; asking again…
        </p>
      )}
      <div class={lost === undefined ? 'page' : 'page old'}>
        <Reasons status={status} />
        <Facts status={status} now={there} />
        <main>
          <Picture status={status} select={setSearch} />
          <div class="side">
            <Drift history={history} now={lost ?? now} />
            <Repairs status={status} now={there} />
          </div>
          <Peers peers={status.peers} search={search} setSearch={setSearch} />
          {status.bgp && <Bgp bgp={status.bgp} now={there} />}
          {status.policy && <Policy policy={status.policy} />}
          {status.services && <Services services={status.services} />}
        </main>
        <footer>
          <a href="status">status as JSON</a>
          <a href="metrics">metrics</a>
          <a href="readyz">readyz</a>
        </footer>
      </div>
    </>
  )
}

function Head({ status, lost, now }: { status: Status; lost: number | undefined; now: number }) {
  const { node, version, started, state } = status
  const condition = [state, whyOf(status).join('; ')].filter(Boolean).join(': ')
  return (
    <header>
      <img src="icon.svg" alt="" width="32" height="32" />
      <div class="who">
        <h1>{node}</h1>
        <p>
          plumb {version}, up {span(now - started)}
        </p>
      </div>
      <p class={`pill ${lost === undefined ? '' : 'old'} ${TONES[state]}`}>{WORDS[state]}</p>
      <p class={`link ${lost === undefined ? 'good' : 'bad'}`}>{lost === undefined ? 'live' : 'connection lost'}</p>
      <p class="heard-only" role="status">
        {lost === undefined ? `Connected. ${node} is ${condition}` : 'The connection to the agent is lost'}
      </p>
    </header>
  )
}

const TONES = { ready: 'good', degraded: 'warn', 'not ready': 'bad' } as const
const WORDS = { ready: 'Ready', degraded: 'Degraded', 'not ready': 'Not ready' } as const

function Reasons({ status }: { status: Status }) {
  if (status.state === 'ready') return null
  return (
    <section class={`reasons ${TONES[status.state]}`} aria-label={`Why the node is ${status.state}`}>
      <ul>
        {whyOf(status).map((reason) => (
          <li key={reason}>{reason}</li>
        ))}
      </ul>
    </section>
  )
}

function whyOf({ ready, reasons, degraded }: Status): readonly string[] {
  return [...(ready || reasons.length > 0 ? reasons : ['the first full sync is not done']), ...degraded]
}

function useTitle({ status, lost }: Seen): void {
  const state = lost !== undefined ? 'connection lost' : status && status.state !== 'ready' ? status.state : ''
  const title = [state, status?.node, 'plumb'].filter(Boolean).join(' · ')
  useEffect(() => {
    document.title = title
  }, [title])
}
