import { X509Certificate } from 'node:crypto'
import { parse as parseYaml } from 'yaml'
import { readText } from '../../../lib/os/reading.ts'
import type { Fact } from './facts.ts'
import { type Process, processes } from './processes.ts'

/** A certificate by which this node logs in at the API server or at etcd. */
export interface Certificate {
  /** The file that has it. */
  readonly path: string
  /** Its begin and its end, in milliseconds since 1970. */
  readonly from: number
  readonly until: number
}

const SETTINGS = '/etc/plumb/agent.yaml'
const KUBELET = '/var/lib/kubelet/pki/kubelet-client-current.pem'
/** The options of the agent that name a file with a certificate, or a kubeconfig. */
const OPTIONS = ['etcd-certfile', 'kubeconfig-file'] as const

/** The certificates by which this node logs in. */
export const certificates: Fact<readonly Certificate[]> = {
  read: async ({ of }) => readCertificates(await of(processes)),
  inAgent: { missing: 'certificates' },
}

/** Reads the certificates of kubelet, and those of an agent that runs. Leaves out what is no certificate. */
export function readCertificates(processes: readonly Process[]): Certificate[] {
  const agents = processes.filter(({ argv }) => argv[1] === 'agent' && argv[0]?.endsWith('plumb'))
  const named = [...agents.flatMap(({ argv }) => optionsIn(argv)), ...(agents.length > 0 ? optionsOfFile() : [])]
  return [...new Set([...named, KUBELET])].flatMap(certificateAt)
}

function optionsIn(argv: readonly string[]): string[] {
  return OPTIONS.flatMap((name) => {
    const at = argv.indexOf(`--${name}`)
    const joined = argv.find((word) => word.startsWith(`--${name}=`))
    return at >= 0 ? (argv[at + 1] ?? []) : (joined?.slice(name.length + 3) ?? [])
  })
}

function optionsOfFile(): string[] {
  try {
    const settings = parseYaml(readText(SETTINGS) ?? '') as Readonly<Record<string, unknown>> | null
    return OPTIONS.flatMap((name) => {
      const value = settings?.[name]
      return typeof value === 'string' ? [value] : []
    })
  } catch {
    // The agent refuses it and says why.
    return []
  }
}

/** When a certificate in PEM begins and ends. Throws Error for any other text. */
export function periodOf(pem: string): Pick<Certificate, 'from' | 'until'> {
  const { validFromDate, validToDate } = new X509Certificate(pem)
  return { from: validFromDate.getTime(), until: validToDate.getTime() }
}

function certificateAt(path: string): Certificate[] {
  try {
    return [{ path, ...periodOf(pemOf(readText(path) ?? '')) }]
  } catch {
    return []
  }
}

// A kubeconfig has the certificate itself, or the path of its file.
function pemOf(text: string): string {
  if (text.includes('-----BEGIN CERTIFICATE-----')) return text
  const { users } = parseYaml(text) as { users?: readonly { readonly user?: Readonly<Record<string, unknown>> }[] }
  const user = users?.[0]?.user ?? {}
  const [data, file] = [user['client-certificate-data'], user['client-certificate']]
  if (typeof data === 'string') return Buffer.from(data, 'base64').toString()
  return typeof file === 'string' ? (readText(file) ?? '') : ''
}
