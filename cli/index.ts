// The commands of `plumb` for people. Begin to read at `main` below. Each command is a file of the same name.
// The folders `demo/`, `explain/` and `help/` hold the larger commands.
import type { Io } from '../lib/cni/call.ts'
import { ValueError } from '../lib/text/errors.ts'
import { suggestion } from '../lib/text/shape.ts'
import { version } from '../package.json'
import { type Command, wantsJson } from './options.ts'
import { fail, print } from './output.ts'

/** The commands by their names. */
export const commands: Readonly<Record<string, Command>> = {
  cni: {
    about: 'attach a network namespace to a network and detach it, as a container runtime does',
    load: () => import('./cni.ts'),
  },
  agent: {
    about: "give this node its part of the network, and make other nodes' pods reachable",
    load: () => import('./agent.ts'),
  },
  status: {
    about: 'tell whether this node’s agent has connected its pods, and why not',
    load: () => import('./status.ts'),
  },
  top: {
    about: 'watch this node, or all nodes of a cluster, in a terminal',
    load: () => import('./top.ts'),
  },
  page: {
    about: 'show all nodes of a cluster on a page in a browser',
    load: () => import('./page.ts'),
  },
  doctor: {
    about: 'say what is wrong with this node’s network, and which command mends it',
    load: () => import('./doctor.ts'),
  },
  sysdump: {
    about: 'pack all that tells the state of this node into one file, without secrets',
    load: () => import('./sysdump.ts'),
  },
  trace: {
    about: 'follow one packet through this node, and say where and why it is lost',
    load: () => import('./trace.ts'),
  },
  connectivity: {
    about: 'test whether pods and nodes reach each other, with test pods and real packets',
    load: () => import('./connectivity.ts'),
  },
  leases: { about: 'show which node has which subnet, and which cannot be reached', load: () => import('./leases.ts') },
  services: {
    about: 'show the Services of this node and their endpoints, and why one is left out',
    load: () => import('./services.ts'),
  },
  bgp: {
    about: 'show the BGP sessions of this node, and why one is not there',
    load: () => import('./bgp.ts'),
  },
  policy: {
    about: 'show which policies select the pods of this node, and test whether a connection passes',
    load: () => import('./policy.ts'),
  },
  wireguard: {
    about: 'give this node another WireGuard key',
    load: () => import('./wireguard.ts'),
  },
  dhcp: { about: 'get leases of DHCP servers for the plugin dhcp, and keep them', load: () => import('./dhcp.ts') },
  install: { about: 'put the plugins where container runtimes look for them', load: () => import('./install.ts') },
  uninstall: {
    about: 'remove what was installed, and put back what was there before',
    load: () => import('./uninstall.ts'),
  },
  demo: { about: 'make pods and nodes of its own, try them out and remove them', load: () => import('./demo.ts') },
}

/**
 * Runs `plumb ARGV` and returns the exit status. `plugin` finds a plugin of this executable. The status is 0 for done,
 * 1 for a failure, 2 for a wrong command line or configuration. Never throws.
 */
export async function main(argv: string[], plugin: Io['plugin']): Promise<number> {
  const [name = '--help', ...rest] = argv
  try {
    if (/^(--help|-h|help)$/.test(name)) {
      const { help } = await import('./help.ts')
      const status = await help(rest, { version, commands, plugin })
      return argv.length === 0 ? 2 : status
    }
    if (/^(--version|-V|version)$/.test(name)) {
      print(`plumb ${version}`)
      return 0
    }
    // The scripts in conf/completions call this. No help names it.
    if (name === '__complete') {
      const { complete } = await import('./complete.ts')
      const found = await complete(rest, commands)
      if (found.length > 0) print(found.join('\n'))
      return 0
    }
    const command = Object.hasOwn(commands, name) ? commands[name] : undefined
    if (!command) {
      const hint = suggestion(name, new Map(Object.keys(commands).map((one) => [one, one])))
      throw new ValueError(`plumb has no command "${name}"${hint}; see plumb --help`)
    }
    const { run } = await command.load()
    return await run(rest, plugin)
  } catch (cause) {
    return fail(cause, wantsJson(rest))
  }
}
