import type { RefObject } from 'preact'
import { useEffect, useRef, useState } from 'preact/hooks'
import { span } from '../phrases.ts'
import { headline } from '../sentence.ts'
import { HOME, hashOf, type Place, placeOf, type View } from './address.ts'
import { Bgp } from './bgp.tsx'
import { clock, copy, Name } from './common.tsx'
import { Events } from './events.tsx'
import { type Go, type Seen, useAgent, useNow, usePlace } from './hooks.ts'
import { HELP, nextRow, useKeys } from './keys.ts'
import { Overview } from './overview.tsx'
import { Peers, type ViewProps } from './peers.tsx'
import { Pods } from './pods.tsx'
import { Policy } from './policy.tsx'
import { Services } from './services.tsx'

const TITLES: Readonly<Record<View, string>> = {
  overview: 'Overview',
  peers: 'Peers',
  pods: 'Pods',
  policy: 'Policy',
  services: 'Services',
  bgp: 'BGP',
  events: 'Events',
}
/** The word of the search that leaves problems only. */
const PROBLEMS: Readonly<Partial<Record<View, string>>> = {
  peers: 'state:bad',
  pods: 'state:bad',
  services: 'state:bad',
  bgp: 'state:bad',
  events: 'tone:bad',
}

/**
 * The status page. This folder has the sources of the page. Begin to read here.
 * All URLs are relative, so that the page also works under the path of a proxy. What it shows is in its address.
 */
export function App() {
  const [place, go] = usePlace()
  const seen = useAgent('events', place.isPaused)
  const now = useNow()
  const { known, lost, aheadMs } = seen
  const [said, say] = useState('')
  const help = useRef<HTMLDialogElement>(null)
  const views = viewsOf(seen)
  useTitle(seen)
  // Keys may follow faster than the page is drawn.
  useKeys((key) => pressed(key, { place: placeOf(location.hash), go, views, say, help: help.current }))
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
      <nav aria-label="Views">
        {views.map((name, i) => (
          <a
            key={name}
            href={hashOf({ ...HOME, view: name })}
            aria-current={place.view === name ? 'page' : undefined}
            title={`Key ${i + 1}`}
          >
            {TITLES[name]}
          </a>
        ))}
        <button type="button" class="keys" onClick={() => help.current?.showModal()}>
          Keys <kbd>?</kbd>
        </button>
      </nav>
      {lost !== undefined && (
        <p class="lost">
          <b>Connection lost</b> {span(now - lost)} ago. What you see is as of {clock(lost)}; asking again…
        </p>
      )}
      <main class={lost === undefined ? place.view : `${place.view} old`}>
        <p class={`sentence ${TONES[known.status.state]}`}>
          <Name>{sentence}</Name>
        </p>
        <Body {...view} />
      </main>
      <footer>
        <a href="status">status as JSON</a>
        <a href="metrics">metrics</a>
        <a href="readyz">readyz</a>
        <a href="log">log as JSON</a>
      </footer>
      <Help dialog={help} />
      <Voice text={lost === undefined ? said || `Connected. ${sentence}` : 'The connection to the agent is lost'} />
    </>
  )
}

function Body(props: ViewProps) {
  switch (props.place.view) {
    case 'peers':
      return <Peers {...props} />
    case 'pods':
      return <Pods {...props} />
    case 'policy':
      return <Policy {...props} />
    case 'services':
      return <Services {...props} />
    case 'bgp':
      return <Bgp {...props} />
    case 'events':
      return <Events {...props} />
    default:
      return <Overview {...props} />
  }
}

function viewsOf({ known }: Seen): readonly View[] {
  const { services, policy, bgp } = known?.status ?? {}
  return [
    'overview',
    'peers',
    'pods',
    ...(policy ? (['policy'] as const) : []),
    ...(services ? (['services'] as const) : []),
    ...(bgp ? (['bgp'] as const) : []),
    'events',
  ]
}

const TONES = { ready: 'good', degraded: 'warn', 'not ready': 'bad' } as const
const WORDS = { ready: '✓ Ready', degraded: '▲ Degraded', 'not ready': '✕ Not ready' } as const

function Head({ seen: { known, lost }, now, place, go }: { seen: Seen; now: number; place: Place; go: Go }) {
  if (!known) return null
  const { node, version, started, state } = known.status
  const link = lost !== undefined ? 'connection lost' : place.isPaused ? `paused, as of ${clock(known.at)}` : 'live'
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
      <p class={`link ${lost !== undefined ? 'bad' : place.isPaused ? 'paused' : 'good'}`}>{link}</p>
      <button type="button" aria-pressed={place.isPaused} onClick={() => go({ isPaused: !place.isPaused })}>
        {place.isPaused ? 'Go on' : 'Pause'}
      </button>
    </header>
  )
}

interface Hands {
  place: Place
  go: Go
  views: readonly View[]
  say(text: string): void
  help: HTMLDialogElement | null
}

/** Does what a key stands for. False for a key without a meaning. */
function pressed(key: string, { place, go, views, say, help }: Hands): boolean {
  const view = /^[1-9]$/.test(key) ? views[Number(key) - 1] : undefined
  if (help?.open) return false
  if (view) go({ ...HOME, view, item: undefined }, true)
  else if (key === '/') document.querySelector<HTMLInputElement>('main input[type=search]')?.focus()
  else if (key === '?') help?.showModal()
  else if (key === 'j' || key === 'k') {
    const selected = nextRow(place.selected, key === 'j' ? 1 : -1)
    if (selected !== undefined) go({ selected })
    // Enter is for the row now, and not for a button that was pressed before.
    if (document.activeElement instanceof HTMLElement) document.activeElement.blur()
  } else if (key === 'Enter') document.querySelector<HTMLElement>('main tr.selected button.open')?.click()
  else if (key === 'Escape') stepBack(place, go)
  else if (key === '!') go({ q: toggled(place.q, PROBLEMS[place.view] ?? '') })
  else if (key === ' ') go({ isPaused: !place.isPaused })
  else if (key === 'c') void copied(commandHere(), 'the command', say)
  else if (key === 'y') void copied(location.href, 'the link', say)
  else return false
  return true
}

function stepBack({ item, q, selected }: Place, go: Go): void {
  const active = document.activeElement
  if (active instanceof HTMLInputElement) active.blur()
  else if (item !== undefined) go({ item: undefined }, true)
  else if (q !== '') go({ q: '' })
  else if (selected !== '') go({ selected: '' })
}

function toggled(q: string, word: string): string {
  const words = q.split(/\s+/).filter(Boolean)
  return (words.includes(word) ? words.filter((one) => one !== word) : [...words, word]).filter(Boolean).join(' ')
}

function commandHere(): string | undefined {
  const found =
    document.querySelector<HTMLElement>('main .selected [data-command]') ??
    document.querySelector<HTMLElement>('main [data-command]')
  return found?.dataset['command']
}

async function copied(text: string | undefined, what: string, say: Hands['say']): Promise<void> {
  if (text === undefined) say('There is no command here')
  else say((await copy(text)) ? `Copied ${what}: ${text}` : `The browser does not let the page copy ${what}`)
}

function Help({ dialog }: { dialog: RefObject<HTMLDialogElement | null> }) {
  return (
    <dialog ref={dialog} aria-labelledby="help">
      <h2 id="help">Keys</h2>
      <dl>
        {HELP.map(([keys, what]) => (
          <div key={keys}>
            <dt>
              <kbd>{keys}</kbd>
            </dt>
            <dd>{what}</dd>
          </div>
        ))}
      </dl>
      <p>
        Words of a search are joined: <code>state:bad zone:b</code>. <code>!</code> negates, <code>a,b</code> is one of
        both, <code>rtt&gt;5</code> compares.
      </p>
      <button type="button" onClick={() => dialog.current?.close()}>
        Close
      </button>
    </dialog>
  )
}

// Says one sentence in five seconds at most.
function Voice({ text }: { text: string }) {
  const [spoken, speak] = useState(text)
  const last = useRef(0)
  useEffect(() => {
    const wait = Math.max(last.current + 5000 - Date.now(), 0)
    const timer = setTimeout(() => {
      last.current = Date.now()
      speak(text)
    }, wait)
    return () => clearTimeout(timer)
  }, [text])
  return (
    <p class="voice" role="status">
      {spoken}
    </p>
  )
}

function useTitle({ known, lost }: Seen): void {
  const status = known?.status
  const state = lost !== undefined ? 'connection lost' : status && status.state !== 'ready' ? status.state : ''
  const title = [state, status?.node, 'plumb'].filter(Boolean).join(' · ')
  useEffect(() => {
    document.title = title
  }, [title])
}
