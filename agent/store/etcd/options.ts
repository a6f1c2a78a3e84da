import { createPrivateKey, X509Certificate } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { shown, ValueError } from '../../../lib/text/errors.ts'

/** The connection to etcd, and the place of the network in etcd. */
export interface EtcdOptions {
  /**
   * `https://10.0.0.1:2379`, with or without the scheme. If an endpoint does not answer, the agent asks the next one.
   */
  readonly endpoints: readonly string[]
  /** The prefix of all keys. The default is flannel's /coreos.com/network. */
  readonly prefix?: string
  /** PEM files. The certificate and its key go together. Each new connection reads them again. */
  readonly caFile?: string
  readonly certFile?: string
  readonly keyFile?: string
  readonly username?: string
  readonly password?: string
  /** Lifetime of a lease in seconds, unless the node renews it. The default is one day, as in flannel. */
  readonly ttlSeconds?: number
}

/** The contents of the TLS files, PEM. */
export interface Secrets {
  readonly ca?: Buffer
  readonly cert?: Buffer
  readonly key?: Buffer
}

/** The origins of the endpoints. Throws ValueError. The message never shows a password from an endpoint. */
export function origins({ endpoints, caFile, certFile, keyFile }: EtcdOptions): readonly string[] {
  if (endpoints.length === 0)
    throw new ValueError('Cannot reach etcd: no endpoints; want at least one such as http://127.0.0.1:2379')
  if ((certFile === undefined) !== (keyFile === undefined)) {
    const missing = certFile ? 'its key file' : 'the certificate of the key file'
    throw new ValueError(`Cannot read the certificate for etcd: ${missing} is missing; want both or neither`)
  }
  return endpoints.map((given) => origin(given, caFile || certFile ? 'https' : 'http'))
}

/** The prefix of all keys, with a slash at the beginning and none at the end. Throws ValueError. */
export function prefixOf({ prefix = '/coreos.com/network' }: EtcdOptions): string {
  const parts = prefix.split('/').filter(Boolean)
  if (parts.length === 0)
    throw new ValueError(`Cannot use the etcd prefix ${shown(prefix)}: want a path such as /coreos.com/network`)
  return `/${parts.join('/')}`
}

/** The user name and the password. Undefined when both are absent. Throws ValueError when one is absent. */
export function loginOf(options: EtcdOptions): { readonly name: string; readonly password: string } | undefined {
  const { username, password } = options
  if (username && !password) throw new ValueError(`Cannot log in to etcd as ${shown(username)}: want a password too`)
  if (!username && password) throw new ValueError('Cannot log in to etcd with a password alone: want a user name too')
  return username && password ? { name: username, password } : undefined
}

/** Lifetime of a lease in seconds. Throws ValueError. */
export function ttlOf({ ttlSeconds = 86_400 }: Pick<EtcdOptions, 'ttlSeconds'>): number {
  if (!Number.isInteger(ttlSeconds) || ttlSeconds < 1)
    throw new ValueError(`Cannot use ${ttlSeconds} as the time of a lease: want whole seconds, 1 or more`)
  return ttlSeconds
}

/** Reads the TLS files. Throws ValueError that names the file that is unreadable or has wrong content. */
export function secrets({ caFile, certFile, keyFile }: EtcdOptions): Secrets {
  return {
    ...(caFile && { ca: pem(caFile, 'a certificate (--etcd-cafile)', certificate) }),
    ...(certFile && { cert: pem(certFile, 'a certificate (--etcd-certfile)', certificate) }),
    ...(keyFile && { key: pem(keyFile, 'a private key (--etcd-keyfile)', createPrivateKey) }),
  }
}

function origin(given: string, scheme: string): string {
  const url = URL.parse(given.includes('://') ? given : `${scheme}://${given}`)
  const what = 'a user name or a password; want those as options of their own'
  if (url?.username || url?.password) throw new ValueError(`Cannot read an endpoint of etcd: it holds ${what}`)
  const isServer = url && /^https?:$/.test(url.protocol) && url.hostname !== ''
  if (isServer && /^\/?$/.test(url.pathname) && !url.search && !url.hash) return url.origin
  throw new ValueError(
    `Cannot read the endpoint ${shown(given)} of etcd: want an address such as http://127.0.0.1:2379`,
  )
}

function pem(path: string, what: string, parse: (text: Buffer) => unknown): Buffer {
  const text = contentOf(path)
  try {
    parse(text)
    return text
  } catch (cause) {
    throw new ValueError(`Cannot use ${path} for TLS with etcd: it does not hold ${what}; want a PEM file`, { cause })
  }
}

function certificate(text: Buffer): X509Certificate {
  return new X509Certificate(text)
}

function contentOf(path: string): Buffer {
  try {
    return readFileSync(path)
  } catch (cause) {
    const { code } = cause as NodeJS.ErrnoException
    throw new ValueError(`Cannot read ${path} for TLS with etcd: ${code}; want a PEM file`, { cause })
  }
}
