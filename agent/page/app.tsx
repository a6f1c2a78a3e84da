import { useEffect, useRef, useState } from 'preact/hooks'
import { span } from '../state/phrases.ts'
import { headline } from '../state/sentence.ts'
import { type PageAddress, placeOf } from './address.ts'
import { clock, Name } from './common.tsx'
import { type Go, type PageData, useAgent, useNow, usePlace } from './hooks.ts'
import { useKeys } from './keys.ts'
import { ASK_MS } from './live.ts'
import { Help, pressed, Views, Voice } from './shell.tsx'
import type { View, ViewProps } from './view.ts'
import { VIEWS } from './views.ts'

const KEYS = VIEWS.map(({ key }) => key)

/**
 * The status page. This folder has the sources of the page. Begin to read here.
 * All URLs are relative, so that the page also works under the path of a proxy. What it shows is in its address.
 */
export function App() {
  const [place, go] = usePlace(KEYS)
  const seen = useAgent('events', place.isPaused)
  const now = useNow()
  const { known, lost, aheadMs } = seen
  const [said, say] = useState('')
  const help = useRef<HTMLDialogElement>(null)
  const views = viewsOf(seen)
  useTitle(seen)
  const here = () => placeOf(location.hash, KEYS)
  useKeys((key) => pressed(key, { go, here, views, say, help: help.current }))
  if (!known)
    return (
      <main>
        <h1 class="empty">
          {lost === undefined
            ? 'Asking the agent…'
            : `The agent does not answer; asking again. Tried for ${span(now - lost)}.`}
        </h1>
      </main>
    )
  const there = place.isPaused ? known.at : now + aheadMs
  const view: ViewProps = { known, place, go, now: there }
  const sentence = headline(known.status, [...known.peers.values()], clock)
  return (
    <>
      <Head seen={seen} now={there} place={place} go={go} />
      <Views all={views} here={place.view} help={help} />
      {lost !== undefined && (
        <p class="lost">
          <b>Connection lost</b> {span(now - lost)} ago. What you see is as of {clock(lost)}; asking again…
        </p>
      )}
      <main class={lost === undefined ? place.view : `${place.view} old`}>
        <p class={`sentence ${TONES[known.status.state]}`}>
          <Name>{sentence}</Name>
        </p>
        {known.status.redacted !== undefined && <Redacted sentence={known.status.redacted} />}
        <Body {...view} />
      </main>
      <footer>
        <a href="status">status as JSON</a>
        <a href="metrics">metrics</a>
        <a href="readyz">readyz</a>
        <a href="log">log as JSON</a>
      </footer>
      <Help dialog={help} views={VIEWS.length} />
      <Voice text={lost === undefined ? said || `Connected. ${sentence}` : 'The connection to the agent is lost'} />
    </>
  )
}

function Redacted({ sentence }: { sentence: string }) {
  return <p class="empty">{sentence}</p>
}

function Body(props: ViewProps) {
  const view = VIEWS.find(({ key }) => key === props.place.view)
  if (!view || (props.known.status.redacted !== undefined && view.hasNames)) return null
  return <view.Show {...props} />
}

function viewsOf({ known }: PageData): readonly View<ViewProps>[] {
  return VIEWS.filter(({ needs }) => needs === undefined || known?.status[needs])
}

const TONES = { ready: 'good', degraded: 'warn', 'not ready': 'bad' } as const
const HELD = 'A proxy between this browser and the agent holds messages back. It must not buffer the path events.'
const WORDS = { ready: '✓ Ready', degraded: '▲ Degraded', 'not ready': '✕ Not ready' } as const

function Head({
  seen: { known, lost, isLive },
  now,
  place,
  go,
}: {
  seen: PageData
  now: number
  place: PageAddress
  go: Go
}) {
  if (!known) return null
  const { node, version, started, state } = known.status
  const link =
    lost !== undefined
      ? 'connection lost'
      : place.isPaused
        ? `paused, as of ${clock(known.at)}`
        : isLive
          ? 'live'
          : `not live: asks every ${span(ASK_MS)}`
  return (
    <header>
      <img src="icon.svg" alt="" width="32" height="32" />
      <div class="who">
        <h1>
          <Name>{node}</Name>
        </h1>
        <p>
          plumb {version}, up {span(now - started)}
        </p>
      </div>
      <p class={`pill ${lost === undefined ? '' : 'old'} ${TONES[state]}`}>{WORDS[state]}</p>
      <p
        class={`link ${lost !== undefined ? 'bad' : place.isPaused || !isLive ? 'paused' : 'good'}`}
        title={isLive || lost !== undefined ? undefined : HELD}
      >
        {link}
      </p>
      <button type="button" aria-pressed={place.isPaused} onClick={() => go({ isPaused: !place.isPaused })}>
        {place.isPaused ? 'Go on' : 'Pause'}
      </button>
    </header>
  )
}

function useTitle({ known, lost }: PageData): void {
  const status = known?.status
  const state = lost !== undefined ? 'connection lost' : status && status.state !== 'ready' ? status.state : ''
  const title = [state, status?.node, 'plumb'].filter(Boolean).join(' · ')
  useEffect(() => {
    document.title = title
  }, [title])
}
