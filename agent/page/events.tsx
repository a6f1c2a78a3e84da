import { useMemo } from 'preact/hooks'
import type { Happening } from '../state/happenings.ts'
import { span } from '../state/phrases.ts'
import { Card, Name, When } from './common.tsx'
import { AGES, type Fields } from './filter.ts'
import { useList } from './hooks.ts'
import { type Column, Table } from './table.tsx'
import type { ViewProps } from './view.ts'

/** The sign of a tone. */
const SIGNS = { error: '✕', warning: '▲', good: '✓', info: '·' } as const

/** One line of the log. */
export function Entry({ one, now }: { one: Happening; now: number }) {
  return (
    <li class={one.tone}>
      <When at={one.until ?? one.at} now={now} />{' '}
      <span>
        <i aria-hidden="true">{SIGNS[one.tone]}</i> <Name>{one.text}</Name>
        {times(one)}
      </span>
    </li>
  )
}

function times({ count, at, until }: Happening): string {
  return count === undefined || until === undefined ? '' : ` (${count} times in ${span(until - at)})`
}

/** The log of the node, the newest first. */
export function Events({ known, place, go, now }: ViewProps) {
  const { happenings, status } = known
  const older = useList<readonly Happening[]>('log', status.started)
  const minute = Math.floor(now / 60_000)
  const all = useMemo(() => {
    const merged = new Map([...(older ?? []), ...happenings].map((one) => [one.n, one]))
    return [...merged.values()].filter((one) => place.at === '' || isBefore(one, place.at, now))
  }, [older, happenings, place.at, minute])
  const fields = useMemo(() => fieldsAt(minute * 60_000), [minute])
  const columns = useMemo(() => columnsAt(now), [minute])
  return (
    <Card
      id="events"
      title="What has happened"
      aside={
        place.at !== '' && (
          <p>
            Up to {place.at}{' '}
            <button type="button" onClick={() => go({ at: '' })}>
              Up to now
            </button>
          </p>
        )
      }
    >
      <Table
        what={all.length === 1 ? 'entry' : 'entries'}
        all={all}
        columns={columns}
        keyOf={keyOf}
        isBad={({ tone }) => tone === 'error'}
        fields={fields}
        textOf={({ text }) => text.toLowerCase()}
        example="kind:peer,store tone:error since<10m"
        orderOf={orderOf}
        sortable={['time']}
        place={place}
        go={go}
        empty="Nothing has happened since the agent has started"
      />
    </Card>
  )
}

function keyOf({ n }: Happening): string {
  return String(n)
}

function orderOf(sort: string): (a: Happening, b: Happening) => number {
  return sort === 'time' ? (a, b) => a.n - b.n : (a, b) => b.n - a.n
}

function fieldsAt(now: number): Fields<Happening> {
  return {
    kind: { kind: 'exact', of: ({ kind }) => kind },
    tone: { kind: 'exact', of: ({ tone }) => (tone === 'error' || tone === 'warning' ? [tone, 'bad'] : tone) },
    node: { kind: 'text', of: ({ kind, about }) => (kind === 'peer' || kind === 'bgp' ? about : undefined) },
    about: { kind: 'text', of: ({ about }) => about },
    since: { kind: 'number', units: AGES, of: ({ at, until = at }) => (now - until) / 1000 },
    text: { kind: 'text', of: ({ text }) => text },
  }
}

function columnsAt(now: number): readonly Column<Happening>[] {
  return [
    { key: 'time', head: 'Time', cell: ({ at, until = at }) => <When at={until} now={now} /> },
    { key: 'kind', head: 'Kind', cell: ({ kind }) => kind },
    {
      key: 'text',
      head: 'What',
      cell: (one) => (
        <span class={one.tone}>
          <i aria-hidden="true">{SIGNS[one.tone]}</i> <Name>{one.text}</Name>
          {times(one)}
        </span>
      ),
    },
  ]
}

// A time of the day, such as 12:03. The log before it, and of its minute.
function isBefore({ at }: Happening, time: string, now: number): boolean {
  const [, hour, minute] = /^(\d{1,2}):(\d{2})$/.exec(time) ?? []
  if (hour === undefined || minute === undefined) return true
  const then = new Date(now)
  then.setHours(Number(hour), Number(minute), 59, 999)
  const moment = then.getTime() > now ? then.getTime() - 86_400_000 : then.getTime()
  return at <= moment
}
