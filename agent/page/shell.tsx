import type { RefObject } from 'preact'
import { useEffect, useRef, useState } from 'preact/hooks'
import { HOME, hashOf, type PageAddress } from './address.ts'
import { copy } from './common.tsx'
import type { Go } from './hooks.ts'
import { helpOf, nextRow } from './keys.ts'
import type { View } from './view.ts'

/** What the shell of a page knows of a view. */
type Link = Pick<View<never>, 'key' | 'title' | 'problems'>

interface ViewsProps {
  all: readonly Link[]
  here: string
  help: RefObject<HTMLDialogElement | null>
}

/** The links to the views, in the order of their keys. */
export function Views({ all, here, help }: ViewsProps) {
  return (
    <nav aria-label="Views">
      {all.map(({ key, title }, i) => (
        <a
          key={key}
          href={hashOf({ ...HOME, view: key })}
          aria-current={here === key ? 'page' : undefined}
          title={`Key ${i + 1}`}
        >
          {title}
        </a>
      ))}
      <button type="button" class="keys" onClick={() => help.current?.showModal()}>
        Keys <kbd>?</kbd>
      </button>
    </nav>
  )
}

/** What the keys work on. */
interface Hands {
  go: Go
  /** The address of the page now. Keys may follow faster than the page is drawn. */
  here(): PageAddress
  views: readonly Link[]
  /** Says something to who cannot see the page. */
  say(text: string): void
  help: HTMLDialogElement | null
}

/** Does what a key stands for. False for a key without a meaning. */
export function pressed(key: string, { go, here, views, say, help }: Hands): boolean {
  const place = here()
  const view = /^[1-9]$/.test(key) ? views[Number(key) - 1]?.key : undefined
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
  else if (key === '!') go({ q: toggled(place.q, views.find((one) => one.key === place.view)?.problems ?? '') })
  else if (key === ' ') go({ isPaused: !place.isPaused })
  else if (key === 'c') void copied(commandHere(), 'the command', say)
  else if (key === 'y') void copied(location.href, 'the link', say)
  else return false
  return true
}

function stepBack({ item, q, selected }: PageAddress, go: Go): void {
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

/** The help for the keys of a page with so many views. */
export function Help({ dialog, views }: { dialog: RefObject<HTMLDialogElement | null>; views: number }) {
  return (
    <dialog ref={dialog} aria-labelledby="help">
      <h2 id="help">Keys</h2>
      <dl>
        {helpOf(views).map(([keys, what]) => (
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

/** Says one sentence in five seconds at most, for a screen reader. */
export function Voice({ text }: { text: string }) {
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
