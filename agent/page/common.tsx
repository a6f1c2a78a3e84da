import type { ComponentChildren } from 'preact'
import { useState } from 'preact/hooks'
import { printable } from '../../lib/text/printable.ts'
import { span } from '../state/phrases.ts'

const time = new Intl.DateTimeFormat('en-GB', { timeStyle: 'medium' })
const short = new Intl.DateTimeFormat('en-GB', { timeStyle: 'short' })
const day = new Intl.DateTimeFormat('en-GB', { dateStyle: 'medium' })

/** A time of this day in hours and minutes, and an earlier one with its day. Local. */
export function clock(at: number): string {
  return Date.now() - at < 86_400_000 ? short.format(at) : `${day.format(at)} ${short.format(at)}`
}

/** A name of other programs: signs that would turn or hide the text around it are shown as escapes. */
export function Name({ children }: { children: string }) {
  return <bdi>{printable(children)}</bdi>
}

/** A moment. Its title has the date and the zone. `now` is by the agent's clock. */
export function When({ at, now }: { at: number; now: number }) {
  return (
    <time dateTime={new Date(at).toISOString()} title={new Date(at).toString()}>
      {now - at < 86_400_000 ? time.format(at) : `${span(now - at)} ago`}
    </time>
  )
}

/** Shows the values of both address families, in one line if there is enough space. */
export function Both({
  of: { v4, v6 },
}: {
  of: { readonly v4?: string | undefined; readonly v6?: string | undefined }
}) {
  if (!v4 && !v6) return <>–</>
  return (
    <span class="both">
      {v4 && <code>{v4}</code>} {v6 && <code>{v6}</code>}
    </span>
  )
}

/** Some words of the kernel's or the network's, such as addresses. None of them is broken at the end of a line. */
export function Codes({ of }: { of: readonly string[] }) {
  return (
    <>
      {of.map((one, i) => (
        <span key={one}>
          {i > 0 && ', '}
          <code>{one}</code>
        </span>
      ))}
    </>
  )
}

/** The heads of the columns of a table. */
export function Heads({ of }: { of: readonly string[] }) {
  return (
    <thead>
      <tr>
        {of.map((head) => (
          <th key={head} scope="col">
            {head}
          </th>
        ))}
      </tr>
    </thead>
  )
}

/** A command to copy. The page runs none. */
export function Command({ children }: { children: string }) {
  const [isCopied, set] = useState(false)
  const copied = async () => {
    if (!(await copy(children))) return
    set(true)
    setTimeout(() => set(false), 2000)
  }
  return (
    <span class="command">
      <code data-command={children}>{children}</code>
      <button type="button" onClick={copied} aria-label={`Copy ${children}`}>
        {isCopied ? 'Copied' : 'Copy'}
      </button>
    </span>
  )
}

/** Puts a text into the clipboard. False when the browser does not let the page. */
export async function copy(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text)
    return true
  } catch {
    return false
  }
}

/** A part of a view with a heading. */
export function Card({ id, title, aside, children }: CardProps) {
  return (
    <section class={`card ${id}`} aria-labelledby={id}>
      <div class="title">
        <h2 id={id}>
          <Name>{title}</Name>
        </h2>
        {aside}
      </div>
      {children}
    </section>
  )
}

interface CardProps {
  id: string
  title: string
  /** What stands beside the heading. */
  aside?: ComponentChildren
  children: ComponentChildren
}
