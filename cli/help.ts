import type { Io } from '../lib/cni/call.ts'
import { ValueError } from '../lib/text/errors.ts'
import { suggestion } from '../lib/text/shape.ts'
import { pages } from './help/pages.ts'
import { terminal } from './help/terminal.ts'
import type { Command } from './options.ts'
import { print, table } from './output.ts'

/** The subjects of the help: the version, the commands and the plugins. */
interface Known {
  readonly version: string
  readonly commands: Readonly<Record<string, Command>>
  readonly plugin: Io['plugin']
}

/**
 * Runs `plumb help WORDS` and returns the exit status. Without a name prints the overview. With a name prints the page
 * of that plugin or the help of that command. Throws ValueError for a name that is neither, and for more words than one
 * name.
 */
export async function help(words: readonly string[], known: Known): Promise<number> {
  const [name, ...more] = words
  const { commands, plugin } = known
  if (name !== undefined && Object.hasOwn(commands, name) && !Object.hasOwn(pages, name))
    return (await commands[name]?.load())?.run([...more, '--help'], plugin) ?? 0
  if (more.length > 0) throw new ValueError(`plumb help wants one name, not "${words.join(' ')}"; see plumb help`)
  print(name === undefined ? await overview(known) : pageOf(name, known))
  return 0
}

function pageOf(name: string, { commands }: Known): string {
  const page = Object.hasOwn(pages, name) ? pages[name] : undefined
  if (page === undefined) {
    const names = [...Object.keys(pages), ...Object.keys(commands)]
    const hint = suggestion(name, new Map(names.map((one) => [one, one])))
    throw new ValueError(`plumb has no plugin and no command "${name}"${hint}; see plumb help`)
  }
  return terminal(page, {
    columns: Math.min(process.stdout.columns || 100, 120),
    isBold: process.stdout.isTTY && !process.env['NO_COLOR'],
  })
}

async function overview({ version, commands, plugin }: Known): Promise<string> {
  const names = Object.keys(pages).filter((name) => name !== 'plugins')
  const plugins = await Promise.all(
    names.map(async (name) => [`  ${name}`, ((await plugin(name))?.about ?? '').replace(/^.*?: /, '')]),
  )
  const rows = Object.entries(commands).map(([name, { about }]) => [`  ${name}`, about])
  const help = ['  help', 'this text; with a name, the page of a plugin or the help of a command']
  return `plumb ${version}: network for containers

usage: plumb COMMAND …

${table([], [...rows, help])}

plumb COMMAND --help tells more. plumb install puts the CNI plugins in place. plumb help PLUGIN
shows its keys and defaults, a sample, its error codes, and how it differs from the reference
plugin. plumb help plugins shows what all plugins have in common:

${table([], plugins)}

exit status: 0 done, 1 something failed, 2 the command line or a configuration is wrong`
}
