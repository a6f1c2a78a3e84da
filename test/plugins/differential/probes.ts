import { fileURLToPath } from 'node:url'
import { linesOf } from '../../../lib/text/lines.ts'

/** A question to the network: what does a server at this address and port answer to a client in a namespace. */
export interface Probe {
  /** What it is called in the comparison: `a → world 4 tcp`. */
  readonly id: string
  /** Path of the client's namespace. */
  readonly from: string
  readonly protocol: 'tcp' | 'udp'
  readonly host: string
  readonly port: number
}
/**
 * Servers in one namespace: each connection or datagram is answered with the name and the address that the client is
 * seen at.
 */
export interface Server {
  readonly ns: string
  readonly name: string
  readonly ports: readonly number[]
}
/**
 * A process that holds servers and clients in all namespaces of a node. When it is closed none of its sockets keeps a
 * namespace alive.
 */
export interface Prober {
  /** Per probe the server's answer, `none` when there is none within `ms`. */
  ask(probes: readonly Probe[], ms: number): Promise<Record<string, string>>
  close(): Promise<void>
}

/** Starts one. */
export async function startProber(servers: readonly Server[]): Promise<Prober> {
  const child = Bun.spawn([process.execPath, fileURLToPath(new URL('./prober.ts', import.meta.url))], {
    stdin: 'pipe',
    stdout: 'pipe',
    stderr: 'inherit',
  })
  const lines = linesOf(child.stdout)
  async function tell(line: unknown): Promise<unknown> {
    child.stdin.write(`${JSON.stringify(line)}\n`)
    await child.stdin.flush()
    const { value, done } = await lines.next()
    if (done) throw new Error(`The prober ended with status ${await child.exited}`)
    return JSON.parse(value)
  }
  await tell(servers)
  return {
    ask: async (probes, ms) => (await tell({ probes, ms })) as Record<string, string>,
    async close() {
      child.kill('SIGKILL')
      await child.exited
    },
  }
}
