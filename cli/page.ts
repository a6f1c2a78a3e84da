// `plumb page`: the page of a fleet, on the machine of who looks at it.

import { shown, ValueError } from '../lib/text/errors.ts'
import { Collector } from './fleet/collector.ts'
import { servePage } from './fleet/page-server.ts'
import { defaultKubeconfig, listOf, listOfPod } from './fleet-list.ts'
import { choicesOf, describeOptions, type Entry, type Grammar, type OptionName, readOptions } from './options.ts'
import { print } from './output.ts'

const PORT = 9470
const names: readonly OptionName[] = ['kubeconfig', 'context', 'agents', 'token-file', 'port', 'help']

/** Its row in the list of commands. */
export const entry: Entry = { place: 5, about: 'show all nodes of a cluster on a page in a browser' }

/** What may follow this command. */
export const grammar: Grammar = { options: choicesOf(names) }

/**
 * Runs `plumb page ARGV` until SIGINT or SIGTERM, and returns 0. Throws ValueError for a wrong command line, and when the
 * port is in use.
 */
export async function run(argv: readonly string[]): Promise<number> {
  const { values, words } = readOptions(argv, names, 'plumb page')
  if (values.help) {
    print(help())
    return 0
  }
  if (words.length > 0) throw new ValueError(`plumb page takes no ${shown(words[0])}; see plumb page --help`)
  const port = portOf(values.port ?? `${PORT}`)
  const list =
    listOf(values, 'plumb page') ??
    listOfPod('plumb page') ??
    listOf({ ...values, kubeconfig: defaultKubeconfig() }, 'plumb page')
  if (!list) throw new ValueError('plumb page has no agents; see plumb page --help')
  const end = new AbortController()
  for (const name of ['SIGINT', 'SIGTERM'] as const) process.once(name, () => end.abort())
  const collector = new Collector(list)
  const source = {
    fleet: () => collector.fleet(),
    get changes() {
      return collector.changes
    },
  }
  const served = serve(port, source)
  try {
    print(`The page is at http://127.0.0.1:${port}/ until Ctrl-C`)
    await collector.run(end.signal)
  } finally {
    served.stop()
  }
  return 0
}

function serve(port: number, source: Parameters<typeof servePage>[1]): { stop(): void } {
  try {
    return servePage(port, source)
  } catch (cause) {
    throw new ValueError(`Cannot listen on 127.0.0.1 port ${port}: ${(cause as Error).message}; want another --port`)
  }
}

function portOf(text: string): number {
  const port = /^\d{1,5}$/.test(text) ? Number(text) : 0
  if (port >= 1 && port <= 65_535) return port
  throw new ValueError(`Cannot read --port ${shown(text)}: want 1 to 65535`)
}

function help(): string {
  return `usage: plumb page [options]: show all nodes of a cluster on a page, at http://127.0.0.1:${PORT}/

Without options it takes the cluster of kubectl, in a pod that of its service account, and
reaches each agent by port-forward.

${describeOptions(names)}

The page changes nothing. It asks each agent every 15 s.`
}
