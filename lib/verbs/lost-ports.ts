import { entries, LINK } from '../journal/journal.ts'
import { RELENTLESS } from '../os/batch-tools.ts'
import { createMark, remove } from '../os/files.ts'
import { fs } from '../os/fs.ts'
import { failures } from '../os/iproute2.ts'
import { linksNow } from '../os/links.ts'
import { log } from '../os/log.ts'
import type { Run } from '../os/run.ts'
import { leave, occupy } from '../os/turns.ts'
import { joining } from '../state/bridge-ports.ts'
import type { Line } from '../state/handler.ts'
import { type BridgePort, type Change, linesOf } from '../state/resource.ts'
import { ExecError } from '../text/errors.ts'
import type { IfName } from '../text/values.ts'

/**
 * Whether pods have lost their ports, because another program deleted their bridge. Comes before the ADD makes the
 * bridge. A mark on disk says so to the next ADD, when this one is killed. Reads the journal only when there is no
 * bridge.
 */
export function hasLostPorts(bridge: IfName, run: Run): boolean {
  if (run.link?.(bridge, 'host') !== false) return fs.existsSync(markOf(bridge))
  if (portsOn(bridge).length === 0) return false
  createMark(markOf(bridge))
  return true
}

/**
 * Joins to a bridge the ports that it has lost, with their settings. A port that another program has put on another
 * bridge stays there. A failure is only logged: the pod of this ADD has its network, and the next ADD tries again.
 */
export async function joinLostPorts(bridge: IfName, run: Run): Promise<void> {
  try {
    // One call at a time. Another one would switch off a port that this one has just switched on.
    if (!occupy(markOf(bridge))) return
    const links = new Map(linksNow().map((one) => [one.name, one]))
    const lost = portsOn(bridge).filter(({ name }) => links.has(name) && links.get(name)?.master === undefined)
    const failed = await join(lost, run)
    for (const [name, said] of failed) log(`plumb: Cannot join ${name} to bridge ${bridge} again: ${said}`)
    if (lost.length > failed.size)
      log(
        `plumb: joined ${lost.length - failed.size} ports to bridge ${bridge} again, which was deleted under their pods`,
      )
    if (failed.size === 0) remove(markOf(bridge))
    leave(markOf(bridge))
  } catch (cause) {
    log(`plumb: Cannot join the ports of bridge ${bridge} again: ${(cause as Error).message}`)
  }
}

// Three processes, whatever the number of ports. A port that refuses a line stays down. Gives what was said of it.
async function join(ports: readonly BridgePort[], run: Run): Promise<ReadonlyMap<IfName, string>> {
  const failed = new Map<IfName, string>()
  const tools = ['ip', 'bridge', 'ip']
  for (const [i, changes] of joining(ports).entries()) {
    const rest = changes.flatMap(linesFor).filter(({ name }) => !failed.has(name))
    if (rest.length > 0) for (const [name, said] of await refused(tools[i] as string, rest, run)) failed.set(name, said)
  }
  return failed
}

/** A line for a tool, and the port that it is about. */
interface PortLine extends Line {
  readonly name: IfName
}
// The pod has gone meanwhile.
const GONE = /Cannot find (bridge )?device|No such device/

function linesFor(change: Change): PortLine[] {
  const { want } = change
  const name = want.kind === 'link' ? want.name : (want as BridgePort['rows'][number]).dev
  return linesOf(change).map((line) => ({ unless: GONE, ...line, name }))
}

async function refused(tool: string, lines: readonly PortLine[], run: Run): Promise<[IfName, string][]> {
  const argv = [tool, ...RELENTLESS]
  const { status, stderr } = await run(argv, lines.map(({ text }) => `${text}\n`).join(''))
  const { byLine, rest } = failures(stderr)
  if (status !== 0 && byLine.size === 0) throw new ExecError(argv, undefined, rest || `ended with status ${status}`)
  return [...byLine].flatMap(([number, said]) => {
    const line = lines[number - 1]
    return line && !line.unless?.test(said) ? [[line.name, said] as [IfName, string]] : []
  })
}

function portsOn(bridge: IfName): BridgePort[] {
  const all = entries().flatMap(({ parts }) => parts[LINK]?.ports ?? [])
  return [...new Map(all.map((one) => [one.name, one])).values()].filter(({ port }) => port.master === bridge)
}

// A reboot removes it, and the kernel's links too.
function markOf(bridge: IfName): string {
  return `/run/cni/plumb/lost-ports-of-${bridge}`
}
