import { rows } from '../../lib/os/iproute2.ts'
import type { Run } from '../../lib/os/run.ts'
import { ExecError, missingModule } from '../../lib/text/errors.ts'

const IPV4 = 4
// fou is the one module of the agent that the kernel does not load by itself: it has no alias (modinfo fou).
const LOAD = ['modprobe', 'fou']

/**
 * Opens a UDP port, so that the kernel takes IPv4 packets out of the UDP packets that come there (FOU, ip-fou(8)).
 * Loads the kernel module when it is missing. Gives false when the port was open before. Throws ExecError with what
 * is in the way.
 */
export async function openPort(port: number, run: Run): Promise<boolean> {
  let ports = await portsNow(run)
  if (ports === undefined && (await isLoaded(run))) ports = await portsNow(run)
  const argv = ['ip', 'fou', 'add', 'port', `${port}`, 'ipproto', `${IPV4}`]
  if (ports === undefined) throw new ExecError(argv, undefined, missingModule('fou add', NO_FAMILY) ?? NO_FAMILY)
  if (ports.some((one) => one.port === port && isPlain(one))) return false
  const { status, stderr } = await run(argv, '')
  if (status === 0) return true
  const said = stderr.trim().replace(/^RTNETLINK answers: /, '')
  if (!/Address already in use/.test(said)) throw new ExecError(argv, undefined, said || `ended with status ${status}`)
  const want = 'want another Backend.Port on all nodes, or that program ended'
  throw new ExecError(argv, undefined, `another program has UDP port ${port} (see: ss -uanp; ip fou show); ${want}`)
}

const NO_FAMILY = 'Error talking to the kernel'

interface FouRow {
  readonly port?: number
  readonly ipproto?: number
  readonly family?: string
  readonly local?: string
  readonly peer?: string
}

function isPlain({ ipproto, family = 'inet', local, peer }: FouRow): boolean {
  const isAny = (address: string | undefined) => address === undefined || address === '0.0.0.0'
  return ipproto === IPV4 && family === 'inet' && isAny(local) && isAny(peer)
}

// Undefined when the kernel lacks the module. A batch would end there, so this is a process of its own.
async function portsNow(run: Run): Promise<readonly FouRow[] | undefined> {
  const argv = ['ip', '-j', 'fou', 'show']
  const { status, stdout, stderr } = await run(argv, '')
  if (status === 0) return rows(stdout).flat() as FouRow[]
  if (stderr.includes(NO_FAMILY)) return undefined
  throw new ExecError(argv, undefined, stderr.trim() || `ended with status ${status}`)
}

// A node without modprobe, such as a container, cannot load modules.
async function isLoaded(run: Run): Promise<boolean> {
  try {
    return (await run(LOAD, '')).status === 0
  } catch {
    return false
  }
}
