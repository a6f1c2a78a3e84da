import { span } from '../phrases.ts'
import { total } from '../reachability.ts'
import type { Repair, Status } from '../status.ts'

const clock = new Intl.DateTimeFormat('en-GB', { timeStyle: 'medium' })

/** The last repairs, and the counts of each kind of kernel object. `now` is by the agent's clock. */
export function Repairs({ status: { kinds, repairs, lastError }, now }: { status: Status; now: number }) {
  return (
    <section class="card" aria-labelledby="repairs">
      <h2 id="repairs">Last repairs</h2>
      {lastError && (
        <p class="error">
          <b>Last error</b> <When at={lastError.at} now={now} />: {lastError.what}
        </p>
      )}
      {repairs.length === 0 ? (
        <p class="empty">Nothing had to be repaired since the start</p>
      ) : (
        // biome-ignore lint/a11y/noNoninteractiveTabindex: it scrolls, and has to do so by keyboard too
        <ol class="repairs" tabIndex={0} aria-labelledby="repairs">
          {repairs.toReversed().map((one, i) => (
            <li key={`${one.at} ${one.what} ${i}`}>
              <span>{one.what}</span> <When at={one.at} now={now} />
            </li>
          ))}
        </ol>
      )}
      <Kinds kinds={kinds} />
    </section>
  )
}

function When({ at, now }: Pick<Repair, 'at'> & { now: number }) {
  return (
    <time dateTime={new Date(at).toISOString()} title={new Date(at).toISOString()}>
      {now - at < 86_400_000 ? clock.format(at) : `${span(now - at)} ago`}
    </time>
  )
}

function Kinds({ kinds }: Pick<Status, 'kinds'>) {
  const rows = Object.entries(kinds)
  const all = total(kinds)
  return (
    <table class="kinds">
      <thead>
        <tr>
          <th scope="col">Kernel objects</th>
          <th scope="col">Wanted</th>
          <th scope="col">Programmed</th>
          <th scope="col">Repaired</th>
        </tr>
      </thead>
      <tbody>
        {[...rows, ['all', all] as const].map(([kind, { wanted, programmed, repaired }]) => (
          <tr key={kind}>
            <th scope="row">{kind}</th>
            <td>{wanted}</td>
            <td class={wanted === programmed ? '' : 'off'}>{programmed}</td>
            <td>{repaired}</td>
          </tr>
        ))}
      </tbody>
    </table>
  )
}
