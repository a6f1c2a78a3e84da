import type { EndpointView, ServiceView } from '../agent/services/view.ts'
import { ValueError } from '../lib/text/errors.ts'
import { answerOf } from './ask.ts'
import { choicesOf, describeOptions, type Entry, type Grammar, type OptionName, readOptions } from './options.ts'
import { print, table } from './output.ts'

const names: readonly OptionName[] = ['socket', 'json', 'help']

/** Its row in the list of commands. */
export const entry: Entry = {
  place: 11,
  about: 'show the Services of this node and their endpoints, and why one is left out',
}

/** What may follow this command. */
export const grammar: Grammar = { options: choicesOf(names), words: ['NAME'] }

/**
 * Runs `plumb services ARGV` and returns the exit status. The status is 0, or 1 when no Service has the given name.
 * Throws ValueError for a wrong command line, and when no agent answers.
 */
export async function run(argv: readonly string[]): Promise<number> {
  const { values, words } = readOptions(argv, names, 'plumb services')
  const [word, more] = words
  if (more !== undefined)
    throw new ValueError(`plumb services takes one name, and no ${JSON.stringify(more)}; see plumb services --help`)
  if (values.help) {
    print(`usage: plumb services [NAME] [options]: the Services of this node, or the endpoints of one: NAME or NAMESPACE/NAME

${describeOptions(names)}

exit status: 0 done, 1 there is no such Service, 2 the command line is wrong or no agent answers`)
    return 0
  }
  const all = (await answerOf('/services', values)) as readonly ServiceView[] | null
  if (all === null) throw new ValueError('The agent of this node serves no Services: it runs without --service-proxy')
  const found =
    word === undefined ? all : all.filter(({ namespace, name }) => word === name || word === `${namespace}/${name}`)
  if (values.json) print(JSON.stringify(found, null, 4))
  else if (word === undefined) print(found.length === 0 ? 'there are no Services' : servicesText(found))
  else print(found.length === 0 ? `there is no Service ${word}` : found.map(detailText).join('\n\n'))
  return word !== undefined && found.length === 0 ? 1 : 0
}

/** Formats Services as a table, one row for each port and family. */
export function servicesText(services: readonly ServiceView[]): string {
  const rows = services.flatMap(({ namespace, name, ports }) =>
    ports.map(({ addresses, nodePort, endpoints }) => {
      const used = endpoints.filter(({ leftOut }) => leftOut === undefined)
      const out = endpoints.length - used.length
      return [
        `${namespace}/${name}`,
        [...addresses, ...(nodePort === undefined ? [] : [`*:${nodePort}`])].join(' '),
        String(used.length),
        String(used.filter(({ isLocal }) => isLocal).length),
        out === 0 ? '' : String(out),
      ]
    }),
  )
  const lost = services.flatMap((one) => one.lost ?? [])
  const all = table(['SERVICE', 'ADDRESSES', 'ENDPOINTS', 'LOCAL', 'LEFT OUT'], rows)
  return lost.length === 0 ? all : [all, ...lost].join('\n')
}

/** Formats one Service with its endpoints. */
export function detailText({ namespace, name, notes, lost = [], ports }: ServiceView): string {
  const head = [[`${namespace}/${name}`, ...notes].join(', '), ...lost].join('\n')
  const parts = ports.map(({ name: port, addresses, nodePort, endpoints }) => {
    const line = [
      ...(port === '' ? [] : [port]),
      ...addresses,
      ...(nodePort === undefined ? [] : [`node port ${nodePort}`]),
    ].join('  ')
    return `${line}\n${endpoints.length === 0 ? '  no endpoint: clients are refused' : table([], endpoints.map(rowOf))}`
  })
  return [head, ...parts].join('\n\n')
}

function rowOf({ address, node, isLocal, leftOut }: EndpointView): string[] {
  return [
    `  ${address}`,
    `${node ?? 'unknown node'}${isLocal ? ' (this node)' : ''}`,
    leftOut === undefined ? '' : `left out: ${leftOut}`,
  ]
}
