import { useMemo } from 'preact/hooks'
import type { PeerObjects } from '../state/details.ts'
import type { ReaderState } from '../state/messages.ts'
import type { PeerPast } from '../state/past.ts'
import { span } from '../state/phrases.ts'
import { reach } from '../state/reachability.ts'
import { isBad, peerOf, type Row, rowName } from '../state/rows.ts'
import { Both, Card, Command, clock, Name, When } from './common.tsx'
import { type Go, useList } from './hooks.ts'
import { roundTrip, SIGNS } from './peer-fields.ts'
import { Spark } from './spark.tsx'

interface Props {
  /** Undefined when there is no such peer. */
  row: Row | undefined
  name: string
  known: ReaderState
  now: number
  go: Go
}

/** One peer: its addresses, its last hour, its objects in the kernel, and the commands that tell more. */
export function Peer({ row, name, known, now, go }: Props) {
  const key = row && [row.v4 ?? '0.0.0.0-0', row.v6].filter(Boolean).join('&').replaceAll('/', '-')
  const minute = Math.floor(now / 60_000)
  const past = useList<PeerPast | null>(`past?peer=${encodeURIComponent(key ?? '')}`, `${key} ${minute}`)
  const objects = useList<PeerObjects | null>(
    `peer?key=${encodeURIComponent(key ?? '')}`,
    `${key} ${Math.floor(now / 5000)}`,
  )
  const news = useMemo(
    () => known.happenings.filter(({ about }) => about === name).toReversed(),
    [known.happenings, name],
  )
  const back = (
    <button type="button" onClick={() => go({ view: 'peers', item: undefined }, true)}>
      All peers
    </button>
  )
  if (!row)
    return (
      <Card id="peer" title={name} aside={back}>
        <p class="empty">No peer has this name or this subnet now</p>
      </Card>
    )
  const state = `${reach(peerOf(row))}${row.since === undefined ? '' : `, since ${clock(row.since)}`}`
  return (
    <>
      <Card id="peer" title={rowName(row)} aside={back}>
        <p class={isBad(row) ? 'bad' : ''}>
          <i class={`sign ${row.state}`} aria-hidden="true">
            {SIGNS[row.state]}
          </i>{' '}
          {state}
        </p>
        <dl class="facts">
          <Fact name="Pods">
            <Both of={{ v4: row.v4, v6: row.v6 }} />
          </Fact>
          <Fact name="Address">
            <Both of={{ v4: row.ip4, v6: row.ip6 }} />
          </Fact>
          <Fact name="Way">{row.backend}</Fact>
          {row.zone !== undefined && (
            <Fact name="Zone">
              <Name>{row.zone}</Name>
            </Fact>
          )}
          {row.version !== undefined && <Fact name="Version">plumb {row.version}</Fact>}
          {row.age !== undefined && <Fact name="Last handshake">{span(row.age * 60_000)} ago</Fact>}
        </dl>
        <div class="sparks">
          <Spark
            values={past?.lost ?? []}
            least={10}
            height={48}
            label="Loss in the last hour"
            shown={(value) => `${value} %`}
          />
          <Spark
            values={past?.ms ?? []}
            least={0.1}
            height={48}
            label="Round trip in the last hour"
            shown={roundTrip}
          />
        </div>
      </Card>
      {objects && <Objects {...objects} />}
      <Card id="ask" title="Ask further">
        <ul class="commands">
          {[
            `plumb trace ${known.status.node} ${rowName(row)}`,
            'plumb doctor DR17 DR18 DR19',
            `ssh ${rowName(row)} plumb status`,
          ].map((command) => (
            <li key={command}>
              <Command>{command}</Command>
            </li>
          ))}
        </ul>
      </Card>
      {news.length > 0 && (
        <Card id="lately" title="What has happened">
          <ol class="log">
            {news.map(({ n, at, tone, text }) => (
              <li key={n} class={tone}>
                <When at={at} now={now} /> <Name>{text}</Name>
              </li>
            ))}
          </ol>
        </Card>
      )}
    </>
  )
}

function Objects({ objects }: PeerObjects) {
  const off = objects.filter(({ wanted, found }) => wanted !== found).length
  const count = off === 0 ? 'all as wanted' : `${off} not as wanted`
  return (
    <Card id="objects" title="In the kernel" aside={<p class={off > 0 ? 'bad' : ''}>{count}</p>}>
      {objects.length === 0 ? (
        <p class="empty">The agent makes nothing for this peer</p>
      ) : (
        <table>
          <thead>
            <tr>
              <th scope="col">Wanted</th>
              <th scope="col">Found</th>
            </tr>
          </thead>
          <tbody>
            {objects.map(({ wanted, found }) => (
              <tr key={wanted} class={wanted === found ? '' : 'bad'}>
                <th scope="row" data-name="Wanted">
                  <code>{wanted}</code>
                </th>
                <td data-name="Found">{found === undefined ? 'is missing' : <code>{found}</code>}</td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
    </Card>
  )
}

function Fact({ name, children }: { name: string; children: preact.ComponentChildren }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  )
}
