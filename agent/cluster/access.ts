import { readFileSync, statSync } from 'node:fs'
import { dirname, resolve } from 'node:path'
import * as v from 'valibot'
import { parse as parseYaml } from 'yaml'
import { shown, ValueError } from '../../lib/text/errors.ts'
import { field, read } from '../../lib/text/shape.ts'
import { runCredentialPlugin } from './exec-credential.ts'

/**
 * The address of the API server and the client's credentials. Every value is read from its file again for each use,
 * because tokens and certificates are renewed under the same name.
 */
export interface Access {
  /** `https://10.96.0.1:443`, without a slash at its end. */
  readonly server: string
  /** A description for messages: `the kubeconfig /etc/kubernetes/kubelet.conf`. */
  readonly origin: string
  /** The certificates of the next connection, in PEM. Throws ValueError. */
  tls(): Promise<Tls>
  /** The headers with the client's credentials. Throws ValueError. */
  headers(): Promise<Readonly<Record<string, string>>>
  /** Call this when the server refuses the credentials. Credentials of a credential program are requested again. */
  refused(): void
}

/** The `tls` option of Bun's `fetch`. */
export interface Tls {
  readonly ca?: string
  readonly cert?: string
  readonly key?: string
  readonly serverName?: string
  readonly rejectUnauthorized?: false
}

/** The way to the API: flannel's `--kubeconfig-file` and `--kube-api-url`. Without both: the pod's service account. */
export interface ApiSettings {
  readonly kubeconfig?: string
  readonly server?: string
  /** The context of the kubeconfig, instead of its current one. */
  readonly context?: string
}

/** The folder with a container's credentials (`serviceaccount` admission). */
const SERVICE_ACCOUNT = '/var/run/secrets/kubernetes.io/serviceaccount'

const text = v.exactOptional(field.text)
const named = <const K extends string>(key: K, entries: v.ObjectEntries) =>
  v.looseObject({ name: field.text, [key]: v.looseObject(entries) })
const EXEC = v.looseObject({
  apiVersion: field.text,
  command: field.text,
  args: v.exactOptional(v.array(field.text)),
  env: v.exactOptional(v.array(v.looseObject({ name: field.text, value: field.text }))),
})
const CLUSTER = {
  server: field.text,
  'certificate-authority': text,
  'certificate-authority-data': text,
  'insecure-skip-tls-verify': v.exactOptional(field.flag),
  'tls-server-name': text,
}
const USER = {
  token: text,
  tokenFile: text,
  'client-certificate': text,
  'client-certificate-data': text,
  'client-key': text,
  'client-key-data': text,
  username: text,
  password: text,
  exec: v.exactOptional(EXEC),
}
const KUBECONFIG = v.looseObject({
  'current-context': v.optional(field.text, ''),
  contexts: v.array(named('context', { cluster: field.text, user: v.optional(field.text, '') })),
  clusters: v.array(named('cluster', CLUSTER)),
  users: v.optional(v.array(named('user', USER)), []),
})

type Cluster = v.InferOutput<v.LooseObjectSchema<typeof CLUSTER, undefined>>
type User = v.InferOutput<v.LooseObjectSchema<typeof USER, undefined>>

/**
 * Finds the way to the API, as client-go does (clientcmd.BuildConfigFromFlags). The first choice is a kubeconfig, whose
 * server `server` replaces when given. The second choice is `server` alone, without credentials. The last choice is the
 * pod's service account. `env` is the process environment. Throws ValueError.
 */
export function accessOf(
  { kubeconfig, server, context }: ApiSettings,
  env: Readonly<Record<string, string | undefined>> = process.env,
): Access {
  if (kubeconfig) return byKubeconfig(kubeconfig, server, context)
  if (server)
    return {
      server: originOf(server),
      origin: 'the server that was given, without credentials',
      tls: async () => ({}),
      headers: async () => ({}),
      refused() {},
    }
  return inCluster(env)
}

/** The namespace of this pod, by its service account. Throws ValueError. */
export function podNamespace(): string {
  return contentOf(`${SERVICE_ACCOUNT}/namespace`).trim()
}

function inCluster(env: Readonly<Record<string, string | undefined>>): Access {
  const [host, port] = [env['KUBERNETES_SERVICE_HOST'], env['KUBERNETES_SERVICE_PORT']]
  if (!host || !port) {
    const why = 'this is no pod of a cluster (KUBERNETES_SERVICE_HOST is not set)'
    throw new ValueError(`Cannot find the Kubernetes API: ${why}; want --kubeconfig-file or --kube-api-url`)
  }
  return {
    server: `https://${host.includes(':') ? `[${host}]` : host}:${port}`,
    origin: 'the service account of the pod',
    tls: async () => ({ ca: contentOf(`${SERVICE_ACCOUNT}/ca.crt`) }),
    headers: async () => ({ Authorization: `Bearer ${contentOf(`${SERVICE_ACCOUNT}/token`).trim()}` }),
    refused() {},
  }
}

function byKubeconfig(path: string, server: string | undefined, context: string | undefined): Access {
  const { cluster, user } = readKubeconfig(path, context)
  const plugin = user.exec && runCredentialPlugin(user.exec, { directory: dirname(path), server: cluster.server })
  const at = (file: string) => contentOf(resolve(dirname(path), file))
  const pem = (data: string | undefined, file: string | undefined) => {
    if (data) return Buffer.from(data, 'base64').toString()
    return file ? at(file) : undefined
  }
  return {
    server: originOf(server ?? cluster.server),
    origin: `the kubeconfig ${path}`,
    async tls() {
      const given = await plugin?.get()
      const ca = pem(cluster['certificate-authority-data'], cluster['certificate-authority'])
      const cert = given?.certificate ?? pem(user['client-certificate-data'], user['client-certificate'])
      const key = given?.key ?? pem(user['client-key-data'], user['client-key'])
      const serverName = cluster['tls-server-name']
      return {
        ...(ca && { ca }),
        ...(cert && { cert }),
        ...(key && { key }),
        ...(serverName && { serverName }),
        ...(cluster['insecure-skip-tls-verify'] && { rejectUnauthorized: false as const }),
      }
    },
    async headers() {
      const token = (await plugin?.get())?.token ?? (user.tokenFile ? at(user.tokenFile).trim() : user.token)
      if (token) return { Authorization: `Bearer ${token}` }
      if (!user.username) return {}
      const basic = Buffer.from(`${user.username}:${user.password ?? ''}`).toString('base64')
      return { Authorization: `Basic ${basic}` }
    },
    refused: () => plugin?.forget(),
  }
}

function readKubeconfig(path: string, wanted: string | undefined): { cluster: Cluster; user: User } {
  try {
    const conf = read(KUBECONFIG, parseYaml(contentOf(path))).value
    const contexts = conf.contexts as readonly Named[]
    const clusters = conf.clusters as readonly Named[]
    const users = conf.users as readonly Named[]
    const current = wanted ?? (conf['current-context'] || contexts[0]?.name)
    const context = one('contexts', contexts, current)['context'] as { cluster: string; user: string }
    const cluster = one('clusters', clusters, context.cluster)['cluster'] as Cluster
    const user = context.user === '' ? {} : (one('users', users, context.user)['user'] as User)
    return { cluster, user }
  } catch (cause) {
    throw new ValueError(`Cannot use the kubeconfig ${path}: ${(cause as Error).message}`, { cause })
  }
}

interface Named {
  readonly name: string
  readonly [key: string]: unknown
}

function one(list: string, entries: readonly Named[], name: string | undefined): Named {
  const found = entries.find((entry) => entry.name === name)
  if (!found) throw new ValueError(`${list}: there is none of the name ${shown(name ?? '')}`)
  return found
}

function originOf(server: string): string {
  const url = URL.parse(server)
  if (!url || !/^https?:$/.test(url.protocol) || url.search || url.hash)
    throw new ValueError(`Cannot use the API server ${shown(server)}: want a URL such as https://10.0.0.1:6443`)
  return `${url.origin}${url.pathname.replace(/\/$/, '')}`
}

function contentOf(path: string): string {
  try {
    if (statSync(path).isDirectory()) throw new Error('it is a folder')
    return readFileSync(path, 'utf8')
  } catch (cause) {
    throw new ValueError(`Cannot read ${path}: ${(cause as Error).message}`, { cause })
  }
}
