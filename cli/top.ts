// `plumb top`: a node or a fleet on the whole terminal. `top/` has the parts: sources, views, keys, drawing.

import { SOCKET } from '../agent/http/server.ts'
import { shown, ValueError } from '../lib/text/errors.ts'
import { printable } from '../lib/text/printable.ts'
import { suggestion } from '../lib/text/shape.ts'
import type { Fleet } from './fleet/fleet.ts'
import { listOf } from './fleet-list.ts'
import {
  choicesOf,
  describeOptions,
  type Entry,
  type Given,
  type Grammar,
  type OptionName,
  readOptions,
} from './options.ts'
import { print, table } from './output.ts'
import { draw, lastScroll, pageOf, tableText, type Watched } from './top/draw.ts'
import { fleetSource, nodeSource, type Source } from './top/sources.ts'
import { initialState, KEYS, pressed, VIEWS, type View } from './top/state.ts'
import { chosen } from './top/table.ts'
import { openTerminal, type Terminal } from './top/terminal.ts'

const names: readonly OptionName[] = ['kubeconfig', 'context', 'agents', 'token-file', 'socket', 'once', 'json', 'help']

/** Its row in the list of commands. */
export const entry: Entry = { place: 4, about: 'watch this node, or all nodes of a cluster, in a terminal' }

/** What may follow this command. */
export const grammar: Grammar = { options: choicesOf(names), words: [VIEWS.join('|')] }

/**
 * Runs `plumb top ARGV` and returns the exit status. With `--once` the status is 0 when all nodes are ready, 1 when none
 * is, and 3 in between. Throws ValueError for a wrong command line, without a terminal, and when no agent answers.
 */
export async function run(argv: readonly string[]): Promise<number> {
  const { values, words } = readOptions(argv, names, 'plumb top')
  if (values.help) {
    print(help())
    return 0
  }
  const view = viewOf(words)
  const source = sourceOf(values)
  if (values.json && !values.once) throw new ValueError('plumb top takes --json with --once only; see plumb top --help')
  if (values.once) return once(source, view, values.json ?? false)
  if (!process.stdin.isTTY || !process.stdout.isTTY)
    throw new ValueError('plumb top needs a terminal: --once prints one look as text, --once --json as JSON')
  await watch(source, view)
  return 0
}

function viewOf([word = 'nodes', ...more]: readonly string[]): View {
  const view = VIEWS.find((one) => one === word)
  if (view && more.length === 0) return view
  const given = more.length > 0 ? [word, ...more].join(' ') : word
  const hint = suggestion(word, new Map(VIEWS.map((one) => [one, one])))
  throw new ValueError(`plumb top takes one of ${VIEWS.join(', ')}, not ${shown(given)}${hint}; see plumb top --help`)
}

function sourceOf(values: Given['values']): Source {
  const fleet = listOf(values, 'plumb top')
  return fleet ? fleetSource(fleet) : nodeSource(values.socket ?? SOCKET)
}

async function once(source: Source, view: View, isJson: boolean): Promise<number> {
  const fleet = await source.once(new AbortController().signal)
  if (isJson) print(JSON.stringify(fleet, null, 4))
  else {
    const watched = source.watched(Date.now())
    print([printable(watched.sentence), onceText(watched, view)].join('\n\n'))
  }
  return statusOf(fleet)
}

function onceText({ tables }: Watched, view: View): string {
  const { headings, lines, empty } = tables[view]
  return lines.length === 0 ? empty : table(['', ...headings], tableText(tables[view]))
}

function statusOf({ nodes, counts, note }: Fleet): number {
  if (counts.ready === nodes.length && nodes.length > 0 && note === undefined) return 0
  return counts.ready + counts.degraded === 0 ? 1 : 3
}

async function watch(source: Source, view: View): Promise<void> {
  const end = new AbortController()
  const isColored = !process.env['NO_COLOR']
  let state = initialState(view)
  let watched = source.watched(Date.now())
  let terminal: Terminal | undefined
  const show = () => terminal?.show(draw(state, watched, terminal.size, isColored))
  const listener = {
    key(key: string) {
      if (!terminal) return
      const { headings } = watched.tables[state.view]
      const keys = chosen(watched.tables[state.view], state).map((line) => line.key)
      const wasPaused = state.isPaused
      const { size } = terminal
      const [page, last] = [pageOf(watched, size), lastScroll(state, watched, size)]
      state = pressed(state, key, { keys, columns: headings.length, page, lastScroll: last })
      if (wasPaused && !state.isPaused) watched = source.watched(Date.now())
      if (state.isOver) end.abort()
      else show()
    },
    resized: show,
  }
  terminal = openTerminal(listener)
  try {
    show()
    await source.follow(() => {
      if (state.isPaused) return
      watched = source.watched(Date.now())
      show()
    }, end.signal)
  } finally {
    terminal.close()
  }
}

function help(): string {
  const width = Math.max(...KEYS.map(([keys]) => keys.length))
  const keys = KEYS.map(([key, about]) => `  ${key.padEnd(width)}  ${about}`)
  return `usage: plumb top [${VIEWS.join('|')}] [options]: watch this node, or all nodes of a cluster, in a terminal

Without options it watches this node, at the socket of its agent.

${describeOptions(names)}

keys:
${keys.join('\n')}

exit status: 0 done, and with --once all nodes are ready; 1 none is; 2 the command line is wrong or no agent answers; 3 some are not`
}
