import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { execa } from 'execa'
import type { Namespace, Row } from '../../support/harness.ts'
import type { Daemons } from './daemons.ts'

const ETCD = 'http://127.0.0.1:2379'
const SERVER = 'https://127.0.0.1:6443'
const TOKEN = 'plumb-test'
// The API listens in the node's namespace only. Prints the status and the body.
const ASK = `
const [method, url, body] = process.argv.slice(1)
const answer = await fetch(url, { method, tls: { rejectUnauthorized: false }, headers: { authorization: 'Bearer ${TOKEN}', 'content-type': 'application/json' }, ...(body && { body }) })
process.stdout.write(answer.status + ' ' + (await answer.text()))`

/** The API of a cluster of one node. */
export interface Api {
  /** The object at a path, undefined when there is none. */
  get(path: string): Promise<Row | undefined>
  post(path: string, object: Row): Promise<Row>
  remove(path: string, options?: Row): Promise<void>
  /** A file by which a kubelet finds it. */
  readonly kubeconfig: string
}

/**
 * Starts etcd and kube-apiserver on a node, with their data in a folder. There is no controller: pods name their node,
 * and have no service account.
 */
export async function startApi({ start }: Daemons, node: Namespace, bin: string, dir: string): Promise<Api> {
  const api = client(node, dir)
  await start(
    'etcd',
    [
      'etcd',
      `--data-dir=${dir}/etcd`,
      `--listen-client-urls=${ETCD}`,
      `--advertise-client-urls=${ETCD}`,
      '--listen-peer-urls=http://127.0.0.1:2380',
      '--log-level=error',
    ],
    async () => must(await node.exec(['bash', '-c', 'exec 3<>/dev/tcp/127.0.0.1/2379'])),
  )
  await execa('openssl', ['genrsa', '-out', join(dir, 'accounts.key'), '2048'])
  writeFileSync(join(dir, 'tokens'), `${TOKEN},admin,admin,"system:masters"\n`)
  mkdirSync(join(dir, 'certificates'))
  const flags = {
    'etcd-servers': ETCD,
    'bind-address': '127.0.0.1',
    'secure-port': '6443',
    'cert-dir': join(dir, 'certificates'),
    'token-auth-file': join(dir, 'tokens'),
    'authorization-mode': 'AlwaysAllow',
    'service-cluster-ip-range': '10.96.0.0/24',
    'service-account-issuer': SERVER,
    'service-account-key-file': join(dir, 'accounts.key'),
    'service-account-signing-key-file': join(dir, 'accounts.key'),
    'disable-admission-plugins': 'ServiceAccount',
    'allow-privileged': 'true',
  }
  await start(
    'kube-apiserver',
    [join(bin, 'kube-apiserver'), ...Object.entries(flags).map(([name, value]) => `--${name}=${value}`)],
    async () => {
      if (!(await api.get('/api/v1/namespaces/default'))) throw new Error('there is no namespace "default" yet')
    },
  )
  return api
}

function client(node: Namespace, dir: string): Api {
  const kubeconfig = join(dir, 'kubeconfig')
  const cluster = { server: SERVER, 'insecure-skip-tls-verify': true }
  writeFileSync(
    kubeconfig,
    JSON.stringify({
      apiVersion: 'v1',
      kind: 'Config',
      'current-context': 'one',
      clusters: [{ name: 'one', cluster }],
      users: [{ name: 'one', user: { token: TOKEN } }],
      contexts: [{ name: 'one', context: { cluster: 'one', user: 'one' } }],
    }),
  )
  async function ask(method: string, path: string, body?: Row): Promise<Row | undefined> {
    const { stdout } = must(
      await node.exec([
        process.execPath,
        '-e',
        ASK,
        method,
        `${SERVER}${path}`,
        ...(body ? [JSON.stringify(body)] : []),
      ]),
    )
    const [, status, text = ''] = /^(\d+) ([\s\S]*)$/.exec(stdout) ?? []
    if (status === '404') return undefined
    if (!status?.startsWith('2')) throw new Error(`${method} ${path}: ${stdout}`)
    return JSON.parse(text)
  }
  return {
    kubeconfig,
    get: (path) => ask('GET', path),
    post: async (path, object) => (await ask('POST', path, object)) as Row,
    remove: async (path, options) => void (await ask('DELETE', path, options)),
  }
}

function must<T extends { readonly status: number; readonly stderr: string }>(done: T): T {
  if (done.status !== 0) throw new Error(done.stderr)
  return done
}
