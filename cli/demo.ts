import { readlinkSync } from 'node:fs'
import { constants } from 'node:os'
import { CniError, CODE, shown, ValueError } from '../lib/errors.ts'
import { has } from '../lib/exec.ts'
import { fetchPage, servePage } from './demo/page.ts'
import { tell } from './demo/story.ts'
import { print, write } from './output.ts'

/** Commands that the demo starts, and the Debian package of each. */
const NEEDS: Readonly<Record<string, string>> = { ip: 'iproute2', nft: 'nftables', ping: 'iputils-ping', unshare: 'util-linux', mount: 'mount' }
// Whatever the demo makes, or dies from, goes with the namespaces: links, rules, mounts below /run, processes.
const UNSHARE = 'unshare --net --mount --pid --fork --mount-proc --kill-child=KILL --propagation private'.split(' ')
const OWN = '/proc/self/ns/net'

/** Runs `plumb demo` and gives the exit status: 0 when every step was seen to be as it says, 1 when one was not, 128 and the signal's number when it was interrupted. Throws CniError when it cannot run here, ValueError for a wrong command line. */
export async function run(argv: readonly string[]): Promise<number> {
  const [part, ...rest] = argv
  if (part === undefined) return inNamespaces()
  if (part === '--help' || part === '-h') {
    print(HELP)
    return 0
  }
  // The demo's own processes: the node, and what runs in the pods.
  if (part === '--inside') return inside(rest)
  if (part === '--serve') return servePage(rest)
  if (part === '--fetch') return fetchPage(rest)
  throw new ValueError(`plumb demo takes no ${shown(part)}; see plumb demo --help`)
}

const HELP = `usage: plumb demo: three pods on a node of its own, wired, tried out and removed, in a few seconds

Runs as root in private namespaces, and changes nothing outside of them. Every line of it was
checked when it says ok.

exit status: 0 every step was as it says, 1 one was not (it is named), 2 the command line is wrong`

async function inNamespaces(): Promise<number> {
  if (process.getuid?.() !== 0) throw new CniError(CODE.env, 'Cannot run the demo: it needs root, for namespaces', 'run it with sudo')
  const missing = Object.keys(NEEDS).filter((name) => !has(name))
  if (missing.length > 0) throw new CniError(CODE.env, `Cannot run the demo: ${missing.join(', ')} not found`, `install ${missing.map((name) => NEEDS[name]).join(' ')}`)
  // A session of its own: Ctrl-C comes here alone, and ends all of it at once.
  const child = Bun.spawn([...UNSHARE, process.execPath, 'demo', '--inside', readlinkSync(OWN)], { stdio: ['ignore', 'inherit', 'inherit'], detached: true })
  let caught: NodeJS.Signals | undefined
  const end = (signal: NodeJS.Signals) => {
    caught = signal
    child.kill('SIGKILL')
  }
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.on(signal, end)
  await child.exited
  if (!caught) return child.exitCode ?? 1
  write(`\nplumb demo: interrupted by ${caught}; what it had made ends with its namespaces\n`)
  return 128 + constants.signals[caught]
}

// The first process of its namespace: the servers in the pods end when it does.
async function inside([outer]: readonly string[]): Promise<never> {
  if (process.pid !== 1 || outer === undefined || outer === readlinkSync(OWN)) throw new ValueError('plumb demo --inside is for plumb demo itself, which gives it namespaces of its own')
  process.exit(await tell())
}
