import type { NetworkList } from '../../../lib/runtime/network-list.ts'
import { defineCheck, type SeenFault } from '../check.ts'
import { typesOf } from '../facts/lists.ts'
import { shellWord } from '../shell.ts'

/** The names of machines in ELF headers, by the name that this program's runtime uses. */
const MACHINES: Readonly<Record<string, string>> = { x64: 'x86_64', arm64: 'aarch64', arm: 'arm', riscv64: 'riscv64' }

/** A plugin that the runtime must start is missing, is for another machine, or may not be executed. */
export const check = defineCheck({
  code: 'DR40',
  title: 'a plugin cannot be started',
  severity: 'error',
  inAgent: 'node',
  reads: ['lists', 'agent', 'pods'],
  detect({ lists: { plugins, binDirs, files }, agent, pods }) {
    const [first] = files
    // Without pods, and without an agent that will have some, nobody starts plugins.
    if (!first?.list || (!agent && pods.length === 0)) return []
    const own = MACHINES[process.arch]
    const used = plugins.filter(({ type }) => typesOf(first.list as NetworkList).includes(type))
    const effect = `pods of the network ${first.list.name} do not start (${first.path})`
    const install = `plumb install --bin-dir ${shellWord(binDirs[0] ?? '')}`
    const missing = used.flatMap(({ type, path }) => (path === undefined ? type : []))
    const which = missing.length > 1 ? `The plugins ${missing.join(', ')} are` : `The plugin ${missing[0]} is`
    const what = `${which} not in ${binDirs.join(' or ')}`
    return [
      ...(missing.length > 0 ? [{ what, effect, commands: [install] }] : []),
      ...used.flatMap(({ path, isExecutable, machine }): SeenFault[] => {
        if (path === undefined) return []
        if (!isExecutable)
          return [{ what: `${path} is not executable`, effect, commands: [`chmod 0755 ${shellWord(path)}`] }]
        if (machine === undefined || machine === own) return []
        return [
          { what: `${path} is a program for ${machine}, and this machine is ${own}`, effect, commands: [install] },
        ]
      }),
    ]
  },
})
