import type { Cell, CellView, PolicyMatrix } from '../policy/matrix.ts'
import { Card, Command, Heads, Name } from './common.tsx'
import { Drafts } from './drafts.tsx'
import { useAnswer } from './hooks.ts'
import type { ViewProps } from './view.ts'

const SIGNS: Readonly<Record<Cell, readonly [sign: string, words: string]>> = {
  o: ['✓', 'open'],
  p: ['◐', 'in part'],
  c: ['✕', 'closed'],
  '-': ['·', 'no pods here'],
}
/** The separator of the two namespaces in the address. No name of a namespace has it. */
const TO = '~'

/** Which namespaces reach which, by the policies. Or the pods of two of them, with what decides. */
export function Policy({ known, place, go }: ViewProps) {
  const { policy } = known.status
  const key = policy && `${policy.steps.count} ${policy.pods}`
  const { value: matrix, why } = useAnswer<PolicyMatrix | null>('policy/matrix', key)
  const [from, to] = (place.item ?? '').split(TO)
  if (from && to) return <Pairs from={from} to={to} version={key} go={go} />
  return (
    <>
      <Card id="policy" title="Who reaches whom" aside={<Legend />}>
        <Unanswered why={why} />
        {!matrix || matrix.namespaces.length === 0 ? (
          <Waits isAnswered={matrix !== undefined} why={why} instead="There are no pods" />
        ) : (
          <div class="matrix">
            <table>
              <caption class="heard-only">From the pods of a row to the pods of a column</caption>
              <thead>
                <tr>
                  <th scope="col">from, to</th>
                  {matrix.namespaces.map((name) => (
                    <th key={name} scope="col">
                      <Name>{name}</Name>
                    </th>
                  ))}
                </tr>
              </thead>
              <tbody>
                {matrix.namespaces.map((name, i) => (
                  <tr key={name}>
                    <th scope="row">
                      <Name>{name}</Name>
                    </th>
                    {matrix.namespaces.map((other, j) => (
                      <td key={other} data-name={other}>
                        <CellButton
                          cell={(matrix.rows[i]?.[j] ?? '-') as Cell}
                          label={`from ${name} to ${other}`}
                          open={() => go({ item: `${name}${TO}${other}` }, true)}
                        />
                      </td>
                    ))}
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
        )}
      </Card>
      {matrix && <Drafts />}
    </>
  )
}

// What stands below is older then.
function Unanswered({ why }: { why: string | undefined }) {
  return why === undefined ? null : (
    <p class="warn" role="status">
      {why}
    </p>
  )
}

function Waits({ isAnswered, why, instead }: { isAnswered: boolean; why: string | undefined; instead: string }) {
  if (!isAnswered && why !== undefined) return null
  return <p class="empty">{isAnswered ? instead : 'Asking the agent…'}</p>
}

function CellButton({ cell, label, open }: { cell: Cell; label: string; open(): void }) {
  const [sign, words] = SIGNS[cell]
  if (cell === '-')
    return (
      <>
        <span class="heard-only">{words}</span>
        <span aria-hidden="true">{sign}</span>
      </>
    )
  return (
    <button type="button" class={`cell cell-${cell}`} aria-label={`${label}: ${words}`} onClick={open}>
      {sign}
    </button>
  )
}

function Legend() {
  return (
    <p>
      {Object.values(SIGNS)
        .map((both) => both.join(' '))
        .join(', ')}
    </p>
  )
}

interface PairsProps extends Pick<ViewProps, 'go'> {
  from: string
  to: string
  version: string | undefined
}

function Pairs({ from, to, version, go }: PairsProps) {
  const path = `policy/cell?from=${encodeURIComponent(from)}&to=${encodeURIComponent(to)}`
  const { value: cell, why } = useAnswer<CellView | null>(path, version)
  const [first] = cell?.pairs ?? []
  return (
    <Card
      id="pairs"
      title={`From ${from} to ${to}`}
      aside={
        <button type="button" onClick={() => go({ item: undefined }, true)}>
          All namespaces
        </button>
      }
    >
      <Unanswered why={why} />
      {!first ? (
        <Waits isAnswered={cell !== undefined} why={why} instead="There are no two such pods" />
      ) : (
        <>
          <table>
            <Heads of={['From', 'To', 'Ports', 'Decision', 'Because']} />
            <tbody>
              {cell?.pairs.flatMap((pair) =>
                pair.ports.map(({ ports, passes, reason }) => (
                  <tr key={`${pair.from} ${pair.to} ${ports}`}>
                    <th scope="row">{pair.from}</th>
                    <td data-name="To">{pair.to}</td>
                    <td data-name="Ports">{ports}</td>
                    <td data-name="Decision">{passes ? '✓ passes' : '✕ refused'}</td>
                    <td data-name="Because">{reason}</td>
                  </tr>
                )),
              )}
            </tbody>
          </table>
          {cell && cell.more > 0 && <p class="empty">{cell.more} more pairs</p>}
          <Command>{`plumb policy test ${first.from} ${first.to} 80`}</Command>
        </>
      )}
    </Card>
  )
}
