// What the pods of a node have in their own namespaces.
import { entries, isThere, LINK } from '../../lib/journal/journal.ts'
import { run } from '../../lib/os/exec.ts'
import { printable } from '../../lib/text/printable.ts'
import { SECTION } from './redactor.ts'

/** So many pods are asked. */
const MOST = 50
const COMMANDS: readonly (readonly string[])[] = [
  ['ip', '-details', 'address'],
  ['ip', '-4', 'route', 'show', 'table', 'all'],
  ['ip', '-6', 'route', 'show', 'table', 'all'],
  ['ip', 'neigh'],
  ['nft', '--handle', '--terse', 'list', 'ruleset'],
]

/** Addresses, routes, neighbours and rules of each pod that plumb has attached. Rejects when the journal cannot be read. */
export async function podStates(): Promise<string> {
  const spaces = entries().flatMap(({ owner, parts }) => {
    const part = parts[LINK]
    return part?.netns === undefined || !isThere(part) ? [] : [{ id: owner.containerId, ns: part.netns }]
  })
  const texts: string[] = []
  // One after another: all at once would be hundreds of processes.
  for (const { id, ns } of spaces.slice(0, MOST)) {
    const said: string[] = []
    for (const argv of COMMANDS) said.push(`# ${argv.join(' ')}\n${await outcome(argv, ns)}`)
    texts.push(`${SECTION}${printable(id)} ${printable(ns)}\n${said.join('\n')}`)
  }
  const more = spaces.length > MOST ? `${SECTION}${spaces.length - MOST} more pods are left out\n` : ''
  return `${texts.join('\n')}${more}`
}

// A namespace that goes meanwhile, and a tool that is not there, are part of the picture.
async function outcome(argv: readonly string[], ns: Parameters<typeof run>[2]): Promise<string> {
  try {
    const { status, stdout, stderr } = await run(argv, '', ns)
    return status === 0 ? stdout : `(it ended with ${status}: ${printable(stderr.trim())})\n`
  } catch (cause) {
    return `(${printable((cause as Error).message)})\n`
  }
}
