import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { execa } from 'execa'
import { certificates } from './certificates.ts'
import { until } from './harness.ts'
import type { Raw } from './kube-server.ts'
import { kubeconfigOf } from './kubeconfig.ts'
import type { KubeCluster } from './suites/testKube.ts'

/** Where tools/k8s/build.ts puts what it builds. */
export const LAB = process.env['PLUMB_K8S'] ?? '/var/cache/plumb/k8s'
const BIN = join(LAB, 'bin')
const NODES = '/api/v1/nodes'
const ROLES = '/apis/rbac.authorization.k8s.io/v1/clusterroles'
const ADMIN = 'token-of-the-administrator'
/** Who has no more than flannel's role. */
const AGENT = 'token-of-the-agent'
const [API, ETCD] = [16_443, 12_379]

/** Why there is no real API server here; undefined when there is one. */
export function missingApiServer(): string | undefined {
  const missing = ['etcd', 'kube-apiserver'].filter((name) => !existsSync(join(BIN, name)))
  return missing.length === 0
    ? undefined
    : `no ${missing.join(' and ')} below ${BIN}: node_modules/.bin/bun tools/k8s/build.ts apiserver builds them with Go`
}

/** A real etcd and kube-apiserver in this test's sandbox. */
export interface ApiServer extends KubeCluster {
  readonly url: string
  /** The authority of its certificate. */
  readonly caFile: string
  /** Asks as the administrator. Throws Error for a refusal. A GET of nothing gives undefined. */
  ask(method: string, path: string, body?: object, type?: string): Promise<Raw | undefined>
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
 * more: pods get; nodes get, list, watch; nodes/status patch.
 */
export async function apiServer(ip = '127.0.0.1'): Promise<ApiServer> {
  const dir = mkdtempSync('/tmp/apiserver-')
  const url = `https://${ip.includes(':') ? `[${ip}]` : ip}:${API}`
  const { caFile = '' } = await certificates(dir, [{ name: 'api', ip }])
  await execa('openssl', ['genrsa', '-out', join(dir, 'sa.key'), '2048'])
  writeFileSync(join(dir, 'tokens.csv'), `${ADMIN},admin,admin,"system:masters"\n${AGENT},plumb,plumb\n`)
  writeFileSync(join(dir, 'kubeconfig'), kubeconfigOf(url, caFile, `token: ${AGENT}`))
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
  const ask = async (method: string, path: string, body?: object, type = 'application/json') => {
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
  const patch = (path: string, change: object) => ask('PATCH', path, change, 'application/strategic-merge-patch+json')
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
      '--service-cluster-ip-range=10.96.0.0/16',
      '--authorization-mode=RBAC',
      '--profiling=false',
    ])
    await until(() => ask('GET', '/readyz').then(() => true), 120_000)
  }
  async function end(): Promise<void> {
    server?.kill('SIGKILL')
    etcd.kill('SIGKILL')
    await Promise.all([server, etcd])
    rmSync(dir, { recursive: true, force: true })
  }
  await start().catch(async (cause) => {
    await end()
    throw cause
  })
  const role = (verbs: readonly string[]) => ({
    metadata: { name: 'plumb' },
    rules: [
      { apiGroups: [''], resources: ['pods'], verbs: ['get'] },
      { apiGroups: [''], resources: ['nodes'], verbs },
      { apiGroups: [''], resources: ['nodes/status'], verbs: ['patch'] },
    ],
  })
  await ask('POST', ROLES, role(['get', 'list', 'watch']))
  await ask('POST', '/apis/rbac.authorization.k8s.io/v1/clusterrolebindings', {
    metadata: { name: 'plumb' },
    roleRef: { apiGroup: 'rbac.authorization.k8s.io', kind: 'ClusterRole', name: 'plumb' },
    subjects: [{ kind: 'User', name: 'plumb' }],
  })
  return {
    url,
    caFile,
    ask,
    kubeconfig: join(dir, 'kubeconfig'),
    create: async (name, podCIDRs, annotations = {}, status) =>
      void (await ask('POST', NODES, {
        metadata: { name, annotations },
        spec: podCIDRs.length > 0 ? { podCIDR: podCIDRs[0], podCIDRs } : {},
        ...(status && { status }),
      })),
    annotate: async (name, annotations) => void (await patch(`${NODES}/${name}`, { metadata: { annotations } })),
    label: async (name, labels) => void (await patch(`${NODES}/${name}`, { metadata: { labels } })),
    heartbeat: async (name) =>
      void (await patch(`${NODES}/${name}/status`, {
        status: {
          conditions: [
            {
              type: 'Ready',
              status: 'True',
              reason: 'KubeletReady',
              message: 'ready',
              lastHeartbeatTime: `${new Date().toISOString().slice(0, 19)}Z`,
            },
          ],
        },
      })),
    remove: async (name) => void (await ask('DELETE', `${NODES}/${name}`)),
    get: (name) => ask('GET', `${NODES}/${name}`),
    allow: async (verbs) => void (await ask('PUT', `${ROLES}/plumb`, role(verbs))),
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
