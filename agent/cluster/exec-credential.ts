import { resolve } from 'node:path'
import { shown, ValueError } from '../../lib/text/errors.ts'

/** The settings of a credential program in a kubeconfig (client.authentication.k8s.io). */
export interface ExecConfig {
  readonly apiVersion: string
  readonly command: string
  readonly args?: readonly string[]
  readonly env?: readonly { readonly name: string; readonly value: string }[]
}

/** The credentials from such a program: a token, or a certificate with its key, both in PEM. */
export interface Credential {
  readonly token?: string
  readonly certificate?: string
  readonly key?: string
}

/** A source of credentials from a program. They are kept until they expire. */
export interface CredentialPlugin {
  /** Throws ValueError when the program fails. */
  get(): Promise<Credential>
  /** Call this when the server refuses the credentials. The next `get` runs the program again. */
  forget(): void
}

/** Time limit of the program. A person needs less, and no caller waits longer. */
const LIMIT_MS = 60_000
/** The program runs again this long before the credentials expire, because the clocks of node and server differ. */
const MARGIN_MS = 10_000

/** Makes such a source. A command with a slash is resolved from the folder of the kubeconfig (`directory`). */
export function runCredentialPlugin(
  conf: ExecConfig,
  { directory, server }: { readonly directory: string; readonly server: string },
): CredentialPlugin {
  let asked: Promise<{ readonly credential: Credential; readonly until: number }> | undefined
  return {
    async get() {
      const last = asked
      const known = await last?.catch(() => undefined)
      // Callers at the same time share one run of the program.
      if (asked === last && (!known || Date.now() >= known.until)) asked = undefined
      asked ??= ask(conf, directory, server)
      return (await asked).credential
    },
    forget() {
      asked = undefined
    },
  }
}

async function ask(
  { apiVersion, command, args = [], env = [] }: ExecConfig,
  directory: string,
  server: string,
): Promise<{ credential: Credential; until: number }> {
  const failed = (why: string) => new ValueError(`Cannot get credentials from ${command}: ${why}`)
  const program = command.includes('/') ? resolve(directory, command) : command
  const info = JSON.stringify({ apiVersion, kind: 'ExecCredential', spec: { interactive: false, cluster: { server } } })
  const given = Object.fromEntries(env.map(({ name, value }) => [name, value]))
  const started = start([program, ...args], { ...process.env, ...given, KUBERNETES_EXEC_INFO: info })
  if (typeof started === 'string') throw failed(started)
  const [status, stdout, stderr] = await Promise.all([
    started.exited,
    new Response(started.stdout).text(),
    new Response(started.stderr).text(),
  ])
  if (status !== 0)
    throw failed(`it ended with status ${started.signalCode ?? status}: ${shown(stderr.trim().split('\n')[0] ?? '')}`)
  const output = parsed(stdout)
  if (!output) throw failed('it did not print an ExecCredential')
  const { token, clientCertificateData: certificate, clientKeyData: key, expirationTimestamp } = output
  if (!token && !(certificate && key)) throw failed('it gave neither a token nor a certificate with its key')
  const end = expirationTimestamp === undefined ? Number.POSITIVE_INFINITY : Date.parse(expirationTimestamp) - MARGIN_MS
  return {
    credential: { ...(token && { token }), ...(certificate && { certificate }), ...(key && { key }) },
    until: Number.isNaN(end) ? 0 : end,
  }
}

function start(argv: string[], env: Record<string, string | undefined>) {
  try {
    return Bun.spawn(argv, {
      env,
      stdin: 'ignore',
      stdout: 'pipe',
      stderr: 'pipe',
      timeout: LIMIT_MS,
      killSignal: 'SIGKILL',
    })
  } catch (cause) {
    return (cause as Error).message
  }
}

interface Status {
  readonly token?: string
  readonly clientCertificateData?: string
  readonly clientKeyData?: string
  readonly expirationTimestamp?: string
}

function parsed(text: string): Status | undefined {
  try {
    const { kind, status } = JSON.parse(text) as { kind?: unknown; status?: Status }
    return kind === 'ExecCredential' && typeof status === 'object' && status !== null ? status : undefined
  } catch {
    return undefined
  }
}
