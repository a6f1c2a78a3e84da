// needs: etcd
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { execa } from 'execa'
import { parseAllDocuments } from 'yaml'
import { certificates } from './certificates.ts'
import { until } from './harness.ts'
import type { Raw, Rule } from './kube-server.ts'
import { kubeconfigOf } from './kubeconfig.ts'
import type { KubeCluster } from './suites/testKube.ts'

/** Where tools/k8s/build.ts puts what it builds. */
export const LAB = process.env['PLUMB_K8S'] ?? '/var/cache/plumb/k8s'
const BIN = join(LAB, 'bin')
const ROOT = join(import.meta.dir, '../..')
const NODES = '/api/v1/nodes'
const RBAC = '/apis/rbac.authorization.k8s.io/v1'
const ADMIN = 'token-of-the-administrator'
/** Who has no more than the roles that are granted. `plumb` begins with flannel's. */
const USERS = { plumb: 'plumb', jane: 'system:serviceaccount:team:jane' } as const
type User = keyof typeof USERS
const CONTROLLERS = 'kube-controller-manager'
const [API, ETCD] = [16_443, 12_379]

/** Why there is no real API server here; undefined when there is one. With `controllers`, its controllers are wanted too. */
export function missingApiServer(controllers?: 'controllers'): string | undefined {
  const wanted = ['etcd', 'kube-apiserver', ...(controllers ? [CONTROLLERS] : [])]
  const missing = wanted.filter((name) => !existsSync(join(BIN, name)))
  const part = controllers ? 'cluster' : 'apiserver'
  return missing.length === 0
    ? undefined
    : `no ${missing.join(' and ')} below ${BIN}: node_modules/.bin/bun tools/k8s/build.ts ${part} builds them with Go`
}

/** A real etcd and kube-apiserver in this test's sandbox. */
export interface ApiServer extends KubeCluster {
  readonly url: string
  /** The authority of its certificate. */
  readonly caFile: string
  /** The way to the server for a user that has only what `grant` gave. `kubeconfig` is that of `plumb`. */
  readonly kubeconfigs: Readonly<Record<User, string>>
  /** That of the administrator, for kubectl and helm. */
  readonly adminKubeconfig: string
  /** Gives a user this role, and no other. */
  grant(user: User, rules: readonly Rule[]): Promise<void>
  /** Asks as the administrator. Undefined when GET finds nothing. Rejects for any other refusal. */
  ask(
    method: 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE',
    path: string,
    body?: object,
    type?: string,
  ): Promise<Raw | undefined>
  /** Ends kube-apiserver, as a crash does; `start` begins it again on the same data. */
  kill(): Promise<void>
  start(): Promise<void>
  /** Gives the agent's role these verbs for Nodes, and no others. */
  allow(verbs: readonly string[]): Promise<void>
  /** Removes all Nodes. */
  clear(): Promise<void>
  /** Ends all of it, and removes the files. */
  end(): Promise<void>
  /** Has etcd forget all changes until now. */
  compact(): Promise<void>
}

/**
 * Starts them. The server listens on `ip`, an address of this machine. The agent's user has flannel's role and nothing
 * more: pods get; nodes get, list, watch; nodes/status patch. With `controllers`, namespaces get their service account, and
 * go away with all that is in them.
 */
export async function apiServer(ip = '127.0.0.1', controllers?: 'controllers'): Promise<ApiServer> {
  const dir = mkdtempSync('/tmp/apiserver-')
  const url = `https://${ip.includes(':') ? `[${ip}]` : ip}:${API}`
  const { caFile = '' } = await certificates(dir, [{ name: 'api', ip }])
  await execa('openssl', ['genrsa', '-out', join(dir, 'sa.key'), '2048'])
  const tokens = Object.entries(USERS).map(([user, name]) => `token-of-${user},${name},${user}\n`)
  writeFileSync(join(dir, 'tokens.csv'), `${ADMIN},admin,admin,"system:masters"\n${tokens.join('')}`)
  const kubeconfigFor = (user: string, token: string) => {
    writeFileSync(join(dir, user), kubeconfigOf(url, caFile, `token: ${token}`))
    return join(dir, user)
  }
  const kubeconfigs = {
    plumb: kubeconfigFor('plumb', 'token-of-plumb'),
    jane: kubeconfigFor('jane', 'token-of-jane'),
  }
  const adminKubeconfig = kubeconfigFor('admin', ADMIN)
  const etcd = run('etcd', [
    '--data-dir',
    join(dir, 'etcd'),
    '--unsafe-no-fsync',
    '--listen-peer-urls',
    'http://127.0.0.1:12380',
    '--listen-client-urls',
    `http://127.0.0.1:${ETCD}`,
    '--advertise-client-urls',
    `http://127.0.0.1:${ETCD}`,
  ])
  let server: ReturnType<typeof run> | undefined
  let manager: ReturnType<typeof run> | undefined
  const ask = async (
    method: string,
    path: string,
    body?: object,
    type = `application/${method === 'PATCH' ? 'strategic-merge-patch+' : ''}json`,
  ) => {
    const headers = { Authorization: `Bearer ${ADMIN}`, 'Content-Type': type }
    const response = await fetch(`${url}${path}`, {
      method,
      headers,
      tls: { ca: readFileSync(caFile) },
      ...(body && { body: JSON.stringify(body) }),
    } as RequestInit)
    const text = await response.text()
    if (!response.ok && !(response.status === 404 && method === 'GET'))
      throw new Error(`${method} ${path}: ${response.status} ${text}`)
    return response.ok && text.startsWith('{') ? (JSON.parse(text) as Raw) : undefined
  }
  const patch = (path: string, change: object) => ask('PATCH', path, change)
  async function start(): Promise<void> {
    const given = [
      'tls-cert-file=api.pem',
      'tls-private-key-file=api.key',
      'client-ca-file=ca.pem',
      'token-auth-file=tokens.csv',
      'service-account-key-file=sa.key',
      'service-account-signing-key-file=sa.key',
    ]
    const files = given.map((one) => `--${one.replace('=', `=${dir}/`)}`)
    server = run('kube-apiserver', [
      `--etcd-servers=http://127.0.0.1:${ETCD}`,
      `--bind-address=${ip}`,
      '--advertise-address=192.0.2.1',
      '--endpoint-reconciler-type=none',
      `--secure-port=${API}`,
      ...files,
      '--service-account-issuer=https://kubernetes.default.svc',
      '--service-cluster-ip-range=10.96.0.0/16,fd00:96::/112',
      '--authorization-mode=RBAC',
      '--allow-privileged=true',
      '--profiling=false',
    ])
    await until(() => ask('GET', '/readyz').then(() => true), 120_000)
  }
  async function end(): Promise<void> {
    for (const one of [manager, server, etcd]) one?.kill('SIGKILL')
    await Promise.all([manager, server, etcd])
    rmSync(dir, { recursive: true, force: true })
  }
  await start().catch(async (cause) => {
    await end()
    throw cause
  })
  if (controllers)
    manager = run(CONTROLLERS, [
      `--kubeconfig=${adminKubeconfig}`,
      '--controllers=namespace-controller,serviceaccount-controller',
      '--leader-elect=false',
      '--secure-port=0',
    ])
  const grant = async (user: User, given: readonly Rule[]) => {
    // The server refuses a rule that allows nothing.
    const rules = given.filter(({ resources, verbs }) => resources.length > 0 && verbs.length > 0)
    const role = { metadata: { name: user }, rules }
    if (await ask('GET', `${RBAC}/clusterroles/${user}`))
      return void (await ask('PUT', `${RBAC}/clusterroles/${user}`, role))
    await ask('POST', `${RBAC}/clusterroles`, role)
    await ask('POST', `${RBAC}/clusterrolebindings`, {
      metadata: { name: user },
      roleRef: { apiGroup: 'rbac.authorization.k8s.io', kind: 'ClusterRole', name: user },
      subjects: [{ kind: 'User', name: USERS[user] }],
    })
  }
  const flannels = (verbs: readonly string[]): Rule[] => [
    { apiGroups: [''], resources: ['pods'], verbs: ['get'] },
    { apiGroups: [''], resources: ['nodes'], verbs },
    { apiGroups: [''], resources: ['nodes/status'], verbs: ['patch'] },
  ]
  await grant('plumb', flannels(['get', 'list', 'watch']))
  return {
    url,
    caFile,
    kubeconfig: kubeconfigs.plumb,
    kubeconfigs,
    adminKubeconfig,
    grant,
    ask,
    create: async (name, podCIDRs, annotations = {}, status) =>
      void (await ask('POST', NODES, {
        metadata: { name, annotations },
        spec: podCIDRs.length > 0 ? { podCIDR: podCIDRs[0], podCIDRs } : {},
        ...(status && { status }),
      })),
    annotate: async (name, annotations) => void (await patch(`${NODES}/${name}`, { metadata: { annotations } })),
    label: async (name, labels) => void (await patch(`${NODES}/${name}`, { metadata: { labels } })),
    heartbeat: async (name, ready = 'True') =>
      void (await patch(`${NODES}/${name}/status`, {
        status: {
          conditions: [
            {
              type: 'Ready',
              status: ready,
              reason: 'KubeletReady',
              message: 'ready',
              lastHeartbeatTime: `${new Date().toISOString().slice(0, 19)}Z`,
            },
          ],
        },
      })),
    remove: async (name) => void (await ask('DELETE', `${NODES}/${name}`)),
    get: (name) => ask('GET', `${NODES}/${name}`),
    allow: (verbs) => grant('plumb', flannels(verbs)),
    clear: async () => void (await ask('DELETE', NODES)),
    start,
    async kill() {
      server?.kill('SIGKILL')
      await server
    },
    end,
    async compact() {
      const status = (await (
        await fetch(`http://127.0.0.1:${ETCD}/v3/maintenance/status`, { method: 'POST', body: '{}' })
      ).json()) as { header: { revision: string } }
      await fetch(`http://127.0.0.1:${ETCD}/v3/kv/compaction`, {
        method: 'POST',
        body: JSON.stringify({ revision: status.header.revision, physical: true }),
      })
    },
  }
}

function run(name: string, args: readonly string[]) {
  return execa(join(BIN, name), args, {
    reject: false,
    buffer: false,
    stdin: 'ignore',
    stdout: 'ignore',
    stderr: 'ignore',
  })
}

/** The rules of the ClusterRole of this name that a page of the docs, or a file of conf/, states. */
export function rulesOf(file: string, name: string): readonly Rule[] {
  const text = readFileSync(join(ROOT, file), 'utf8')
  const parts = file.endsWith('.md')
    ? [...text.matchAll(/^```yaml\n(.*?)^```/gms)].map(([, yaml]) => yaml ?? '')
    : [text]
  const objects = parts.flatMap((yaml) => parseAllDocuments(yaml).map((one) => one.toJS() as Partial<Role> | null))
  const found = objects.find((one) => one?.kind === 'ClusterRole' && one.metadata?.name === name)
  if (!found?.rules) throw new Error(`${file} has no ClusterRole ${name}`)
  return found.rules
}
interface Role {
  readonly kind: string
  readonly metadata: { readonly name: string }
  readonly rules: readonly Rule[]
}
