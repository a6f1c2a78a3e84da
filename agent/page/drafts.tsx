import { useState } from 'preact/hooks'
import type { Comparison } from '../policy/comparison.ts'
import { comparisonWords } from '../policy/comparison-words.ts'
import { Card, Heads } from './common.tsx'

/** An agent reads this many characters of an address at most, with the rest of the request. */
const MOST = 7000

/** Policies that somebody thinks of, and what they would change. The agent applies nothing. */
export function Drafts() {
  const [text, write] = useState('')
  const [answer, set] = useState<Comparison | string>()
  const ask = async (event: Event) => {
    event.preventDefault()
    set(await compare(text))
  }
  return (
    <Card id="drafts" title="What would change" aside={<p>Nothing is applied</p>}>
      <form onSubmit={ask}>
        <label for="draft">NetworkPolicies that are not in the cluster yet, as YAML or JSON</label>
        <textarea
          id="draft"
          rows={Math.min(Math.max(text.split('\n').length, 3), 16)}
          spellcheck={false}
          placeholder={'apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy'}
          value={text}
          onInput={({ currentTarget }) => write(currentTarget.value)}
        />
        <button type="submit" disabled={text.trim() === ''}>
          Compare
        </button>
      </form>
      <div role="status">
        {typeof answer === 'string' ? <p class="warn">{answer}</p> : answer && <Changes of={answer} />}
      </div>
    </Card>
  )
}

function Changes({ of }: { of: Comparison }) {
  const { pairs, more } = of
  return (
    <>
      <ul>
        {comparisonWords(of).map((line) => (
          <li key={line}>{line}</li>
        ))}
      </ul>
      {pairs.length > 0 && (
        <table>
          <Heads of={['From', 'To', 'Ports', 'Then', 'Because', 'Now']} />
          <tbody>
            {pairs.flatMap(({ from, to, ports }) =>
              ports.map((one) => (
                <tr key={`${from} ${to} ${one.ports}`}>
                  <th scope="row">{from}</th>
                  <td data-name="To">{to}</td>
                  <td data-name="Ports">{one.ports}</td>
                  <td data-name="Then">{one.passes ? '✓ passes' : '✕ refused'}</td>
                  <td data-name="Because">{one.reason}</td>
                  <td data-name="Now">{one.before}</td>
                </tr>
              )),
            )}
          </tbody>
        </table>
      )}
      {more > 0 && <p class="empty">{more} more pairs</p>}
    </>
  )
}

// The answer of the agent, or why there is none.
async function compare(text: string): Promise<Comparison | string> {
  const drafts = await packed(text)
  if (drafts.length > MOST) return 'This is too long for the page. Take plumb policy compare FILE on the node.'
  try {
    const answer = await fetch(`policy/compare?drafts=${drafts}`)
    if (!answer.ok) return await answer.text()
    return ((await answer.json()) as Comparison | null) ?? 'The agent does not know all objects of the cluster yet.'
  } catch {
    return 'The agent does not answer.'
  }
}

// As agent/page/packed.ts takes it.
async function packed(text: string): Promise<string> {
  const stream = new Blob([text]).stream().pipeThrough(new CompressionStream('deflate-raw'))
  const bytes = new Uint8Array(await new Response(stream).arrayBuffer())
  return btoa(String.fromCharCode(...bytes))
    .replace(/\+/g, '-')
    .replace(/\//g, '_')
    .replace(/=+$/, '')
}
