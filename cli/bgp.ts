import type { BgpSession } from '../agent/bgp/view.ts'
import { span } from '../agent/state/phrases.ts'
import type { Status } from '../agent/state/status.ts'
import { ask } from './ask.ts'
import type { Entry } from './options.ts'
import { table } from './output.ts'

/** Its row in the list of commands. */
export const entry: Entry = { place: 12, about: 'show the BGP sessions of this node, and why one is not there' }

/** What may follow this command. */
export { grammar } from './ask.ts'

/**
 * Runs `plumb bgp ARGV` and returns the exit status. The status is 0 when the node is ready, 1 when it is not ready, 3
 * when it is degraded. Throws ValueError for a wrong command line, and when no agent answers.
 */
export async function run(argv: readonly string[]): Promise<number> {
  return ask(
    {
      name: 'bgp',
      about: 'the BGP sessions of this node, and why one is not there',
      text: bgpText,
      json: ({ bgp }) => bgp ?? null,
    },
    argv,
  )
}

// Formats the sessions for people. `now` is in milliseconds since 1970.
function bgpText({ node, bgp }: Status, now: number): string {
  if (!bgp) return `${node} runs no BGP: its agent has no --bgp-config`
  const { asn, pid, restarts, programs, announced, sessions } = bgp
  if (asn === 0) return `${node} has no configuration of BGP yet (see: plumb status)`
  const bird = pid === undefined ? 'BIRD does not run (see: plumb status)' : `BIRD is process ${pid}`
  const again = restarts === 0 ? '' : `, starts after its end: ${restarts}`
  const routes = programs === undefined ? '' : '; BIRD writes the routes to nodes'
  const head = `${node} is AS ${asn}, announced prefixes: ${announced}; ${bird}${again}${routes}`
  if (sessions.length === 0) return `${head}\n\nno sessions`
  const rows = sessions.map((one) => rowOf(one, now))
  return `${head}\n\n${table(['PEER', 'ADDRESS', 'AS', 'STATE', 'SINCE', 'IN', 'OUT', 'REASON'], rows)}`
}

function rowOf({ kind, name, address, asn, state, since, received, sent, reason }: BgpSession, now: number): string[] {
  return [
    kind === 'node' ? `node ${name}` : name,
    address,
    `${asn}`,
    state,
    since === undefined ? '' : span(now - since),
    `${received}`,
    `${sent}`,
    reason ?? '',
  ]
}
