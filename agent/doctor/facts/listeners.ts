import type { Run } from '../../../lib/os/run.ts'
import { ExecError } from '../../../lib/text/errors.ts'
import type { Fact } from './facts.ts'

/** A socket of this node at which a program listens. */
export interface Listening {
  readonly protocol: 'tcp' | 'udp' | 'sctp'
  /** `*`, `0.0.0.0` and `::` mean all addresses. `*` means those of both families. */
  readonly ip: string
  readonly port: number
  /** The program, such as `nginx`. Empty when the kernel does not tell. */
  readonly name: string
  readonly pid: number | undefined
}

/** The sockets of this namespace at which programs listen. */
export const listeners: Fact<readonly Listening[]> = {
  read: ({ run }) => readListeners(run),
  inAgent: { missing: 'the sockets of other programs' },
}

/** Reads the sockets at which programs of this namespace listen. Throws Error when `ss` fails. */
export async function readListeners(run: Run): Promise<Listening[]> {
  const argv = ['ss', '-H', '-l', '-n', '-t', '-u', '-S', '-p']
  const { status, stdout, stderr } = await run(argv, '')
  if (status !== 0) throw new ExecError(argv, undefined, stderr.split('\n', 1)[0] ?? '')
  return stdout.split('\n').flatMap(listeningOf)
}

// Such as `tcp LISTEN 0 128 0.0.0.0:80 0.0.0.0:* users:(("nginx",pid=7,fd=6))`. An address may name its link.
function listeningOf(line: string): Listening[] {
  const [protocol, , , , local = '', , users = ''] = line.trim().split(/\s+/)
  const [, address = '', port] = /^(.*):(\d+)$/.exec(local) ?? []
  if ((protocol !== 'tcp' && protocol !== 'udp' && protocol !== 'sctp') || port === undefined) return []
  const [, name = '', pid] = /\("([^"]*)",pid=(\d+)/.exec(users) ?? []
  const ip = address.replace(/^\[|\]$/g, '').replace(/%.*$/, '')
  return [{ protocol, ip, port: Number(port), name, pid: pid === undefined ? undefined : Number(pid) }]
}
