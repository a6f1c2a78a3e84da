// lane: long
// needs: systemd
// Tests cli/sysdump.ts and cli/sysdump on a node with an agent, a journal of systemd and an API server.
import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { join, relative } from 'node:path'
import { execa } from 'execa'
import { type Namespace, plugin, snapshot, until } from '../../support/harness.ts'
import { type KubeServer, kubeServer } from '../../support/kube-server.ts'
import { fileStore, inCluster, type Node } from '../../support/nodes.ts'
import { patient } from '../../support/patience.ts'
import { random } from '../../support/seed.ts'

const PLUMB = join(import.meta.dir, '../../../dist/plumb')
const CONF = { Network: '10.64.0.0/12', Backend: { Type: 'host-gw' } }
const [NODE, PEER, POD, SPACE] = ['worker-one', 'worker-two', 'checkout-7f9c', 'paymentsteam']
// The test's own end of a link to the node: where the API server is.
const API = { here: '172.31.0.1', node: '172.31.0.2' }

/** Makes secrets and remembers them. */
class Secrets {
  readonly all: string[] = []
  make(): string {
    const secret = `S${this.all.length}x${randomBytes(9).toString('hex')}`
    this.all.push(secret)
    return secret
  }
  key(): string {
    const key = randomBytes(32).toString('base64')
    this.all.push(key)
    return key
  }
  pem(): string {
    const body = randomBytes(96).toString('base64')
    this.all.push(body.slice(0, 64), body.slice(64))
    return `-----BEGIN EC PRIVATE KEY-----\n${body.slice(0, 64)}\n${body.slice(64)}\n-----END EC PRIVATE KEY-----\n`
  }
}

const QUIET = { stdin: 'ignore', stdout: 'ignore', stderr: 'ignore' } as const
const children: ReturnType<typeof Bun.spawn>[] = []

describe('plumb sysdump', () => {
  afterEach(() => {
    for (const child of children.splice(0)) child.kill('SIGKILL')
  })

  it(
    'has the state of a node and none of 40 secrets on it, is whole with hostile names, and leaves nothing',
    inCluster(
      1,
      (cluster) => fileStore(cluster, CONF),
      async ({ nodes: [node] }) => {
        const scene = await prepare(node as Node)
        const { ns, dir } = node as Node
        const out = mkdtempSync('/tmp/sysdump-')
        try {
          const before = await snapshot(ns)
          const files = () =>
            [...readdirSync('/run'), ...readdirSync('/run/cni/plumb'), ...readdirSync('/var/lib')].sort()
          const [filesBefore, modules] = [files(), names('/proc/modules')]
          // One that is killed, and the draft that it leaves when it is killed while it writes.
          const killed = Bun.spawn(
            ['nsenter', `--net=${ns.path}`, PLUMB, 'sysdump', '-o', join(out, 'killed.tar.gz')],
            QUIET,
          )
          await Bun.sleep(1000 * random())
          killed.kill('SIGKILL')
          await killed.exited
          const draft = join(out, `.plumb-sysdump-${killed.pid}.draft`)
          writeFileSync(draft, 'half')
          await until(() => Date.now() - scene.loggedAt > 2000)
          const began = performance.now()
          const [plain, anonymous, recent] = await Promise.all([
            dump(ns, dir, join(out, 'plain')),
            dump(ns, dir, join(out, 'anonymous'), '--anonymous'),
            dump(ns, dir, join(out, 'recent'), '--since', '1s'),
          ])
          assert.ok(performance.now() - began < patient(60_000))
          assert.deepEqual(readdirSync(out).sort(), [
            'anonymous',
            'anonymous.tar.gz',
            'plain',
            'plain.tar.gz',
            'recent',
            'recent.tar.gz',
          ])
          assert.deepEqual([await snapshot(ns), files(), names('/proc/modules')], [before, filesBefore, modules])
          assert.ok(statSync(join(out, 'plain.tar.gz')).size < 20_000_000)
          assert.equal(statSync(join(out, 'plain.tar.gz')).mode & 0o777, 0o600)
          assert.ok(scene.secrets.length >= 40, `${scene.secrets.length}`)
          for (const [what, found] of Object.entries({ plain, anonymous })) {
            refuseSecrets(found, scene.secrets, what)
            assert.ok(!scene.api.asked().some((one) => one.includes('secrets')))
          }
          // What it is for.
          const text = (file: string) => plain.get(file) ?? assert.fail(`${file} of ${[...plain.keys()].join(' ')}`)
          const json = (file: string) => JSON.parse(text(file))
          assert.equal(json('plumb/status.json').node, NODE)
          assert.match(text('plumb/metrics-1.txt'), /^plumb_ready 1$/m)
          assert.match(text('plumb/metrics-2.txt'), /^plumb_ready 1$/m)
          assert.ok(json('plumb/doctor.json').made.includes('DR1'))
          assert.ok(json('plumb/facts.json').links.some(({ name }: { name: string }) => name === 'eth0'))
          assert.ok(json('net/routes4.json').some(({ dst }: { dst: string }) => dst === 'default'))
          assert.match(text('net/nft.txt'), /table inet plumb_agent/)
          assert.match(text('cni/subnet-env.txt'), /FLANNEL_NETWORK=10\.64\.0\.0\/12/)
          assert.match(text('cni/networks.txt'), /"type": ?"bridge"/)
          assert.match(text('cni/journal.txt'), new RegExp(scene.container))
          assert.match(text('log/kubelet.txt'), /logged in/)
          assert.match(text('log/kubelet.txt'), /\(removed\)/)
          assert.equal(recent.get('log/kubelet.txt'), '')
          assert.match(text('log/pods.txt'), /plumb-7x2lp[\s\S]*logging in with password[\s\S]*\(removed\)/)
          assert.ok(!text('log/pods.txt').includes('of the pod of a user'))
          assert.equal(json('cluster/Pod.json').length, 2)
          assert.match(text('cluster/Pod.json'), /flannel\.alpha\.coreos\.com\/x/)
          assert.match(text('cluster/Node.json.error'), /refused GET \/api\/v1\/nodes/)
          assert.match(text('index.txt'), /cluster\/Node\.json\.error/)
          // Names and addresses, the same in all files.
          const all = [...anonymous.values()].join('\n')
          for (const name of [NODE, PEER, POD, SPACE, '10.64.', '172.30.0.', 'fd00:30:', scene.mac])
            assert.ok(!all.includes(name), `${name}: ${around(all, name)}`)
          const status = JSON.parse(anonymous.get('plumb/status.json') ?? '')
          const env = /FLANNEL_SUBNET=(\S+)\.1\/24/.exec(anonymous.get('cni/subnet-env.txt') ?? '')?.[1]
          assert.equal(status.node, 'node-1')
          assert.equal(status.subnets.v4, `${env}.0/24`)
          assert.ok(anonymous.get('plumb/facts.json')?.includes(`${env}.0/24`))
          const pod = JSON.parse(anonymous.get('cluster/Pod.json') ?? '')[0]
          assert.match(pod.metadata.name, /^pod-\d+$/)
          assert.ok(anonymous.get('log/kubelet.txt')?.includes(`${pod.metadata.namespace}/${pod.metadata.name}`))
        } finally {
          rmSync(out, { recursive: true })
        }
      },
    ),
  ).timeout(120_000)

  it(
    'writes where it is told, and says what is wrong with a command line and a folder',
    inCluster(
      1,
      (cluster) => fileStore(cluster, CONF),
      async ({ nodes: [node] }) => {
        const { ns } = node as Node
        const run = (...args: string[]) => ns.exec([PLUMB, 'sysdump', ...args])
        for (const [args, said] of [
          [['--since', '1w'], /--since "1w": want a time up to 30d, such as 90s, 30m, 1h or 2d/],
          [['--since', '31d'], /want a time up to 30d/],
          [['x'], /plumb sysdump takes no "x"/],
          [['--sinse', '1h'], /has no option --sinse, did you mean "--since"/],
        ] as const) {
          const { status, stderr } = await run(...args)
          assert.equal(status, 2)
          assert.match(stderr, said)
        }
        const [onStdout, nowhere] = await Promise.all([
          ns.exec(['sh', '-c', `${PLUMB} sysdump --since 1m -o - | tar tz`]),
          run('-o', '/proc/x.tar.gz'),
        ])
        assert.match(onStdout.stdout, /^plumb-sysdump-[^/]+\/plumb\/version\.txt$/m)
        assert.equal(nowhere.status, 1)
        assert.match(nowhere.stderr, /Cannot write .*x\.tar\.gz: /)
      },
    ),
  ).timeout(120_000)

  it(
    'a collector that hangs has ten seconds, and its error is a file',
    inCluster(
      1,
      (cluster) => fileStore(cluster, CONF),
      async ({ nodes: [node] }) => {
        const { ns, dir } = node as Node
        const silent = Bun.listen({ unix: join(dir, 'agent.sock'), socket: { data() {} } })
        const out = mkdtempSync('/tmp/sysdump-')
        try {
          const began = performance.now()
          const found = await dump(ns, dir, join(out, 'hanging'))
          assert.ok(performance.now() - began < patient(60_000))
          for (const file of ['plumb/status.json', 'plumb/metrics-1.txt', 'plumb/metrics-2.txt'])
            assert.equal(found.get(`${file}.error`), 'It did not end within 10 s\n')
          assert.ok(JSON.parse(found.get('net/links.json') ?? '').length > 0)
          assert.ok(JSON.parse(found.get('plumb/doctor.json') ?? '').made.length > 0)
        } finally {
          silent.stop(true)
          rmSync(out, { recursive: true })
        }
      },
    ),
  ).timeout(120_000)
})

/** A node with everything that could have a secret. */
async function prepare(node: Node) {
  const secrets = new Secrets()
  const s = () => secrets.make()
  const { ns, dir } = node
  await execa('ip', ['link', 'add', 'name', 'api0', 'type', 'veth', 'peer', 'name', 'api1', 'netns', ns.path])
  await execa('ip', ['addr', 'add', `${API.here}/24`, 'dev', 'api0'])
  await execa('ip', ['link', 'set', 'api0', 'up'])
  await ns.ip('addr', 'add', `${API.node}/24`, 'dev', 'api1')
  await ns.ip('link', 'set', 'api1', 'up')
  const api = await kubeServer(API.here)
  serveObjects(api, secrets)

  // Files: settings, BGP, keys, kubeconfigs, etcd.
  const state = join(dir, 'state')
  for (const path of ['/etc/plumb', '/etc/kubernetes', '/etc/etcd', '/etc/wireguard', state])
    mkdirSync(path, { recursive: true })
  writeFileSync('/etc/plumb/agent.yaml', `etcd-username: root\netcd-password: ${s()}\n# old-token: "${s()}"\n`)
  writeFileSync(
    '/etc/plumb/bgp.yaml',
    `asn: 64512\npeers:\n  - address: 192.0.2.1\n    asn: 64513\n    passwordFile: ${dir}/md5\n`,
  )
  writeFileSync(join(dir, 'md5'), `${s()}\n`)
  const bgp = secrets.all.at(-1)
  const wireguard = secrets.key()
  writeFileSync(join(state, 'wireguard-key'), `${wireguard}\n`)
  const peerKey = secrets.key()
  writeFileSync(
    '/etc/wireguard/wg0.conf',
    `[Interface]\nPrivateKey = ${secrets.key()}\n[Peer]\nPresharedKey = ${peerKey}\n`,
  )
  const pem = secrets.pem()
  writeFileSync(
    '/etc/kubernetes/admin.conf',
    `users:\n- name: admin\n  user:\n    client-key-data: ${Buffer.from(pem).toString('base64')}\n    client-certificate-data: ${secrets.key()}\n    token: ${s()}\n    password: ${s()}\n`,
  )
  const [kubeToken, kubePassword] = secrets.all.slice(-2)
  writeFileSync('/etc/etcd/etcd.conf', `ETCD_ROOT_PASSWORD=${s()}\nETCD_INITIAL_CLUSTER_TOKEN="${s()}"\n`)
  const [etcd] = secrets.all.slice(-2)

  // Command lines and environments, of the agent and of another program.
  const agent = node.agentBy(
    ['env', `FLANNELD_ETCD_PASSWORD=${s()}`, `SOME_TOKEN=${s()}`],
    '--node-name',
    NODE,
    '--kubeconfig-file',
    api.kubeconfig,
    `--etcd-password=${s()}`,
  )
  const inEnvironment = secrets.all.at(-2)
  const words = [
    '--token',
    s(),
    `--db-password=${s()}`,
    '-u',
    `root:${s()}`,
    `https://a:${s()}@x/`,
    `PGPASSWORD=${s()}`,
  ]
  children.push(Bun.spawn(['nsenter', `--net=${ns.path}`, 'sh', '-c', 'sleep 600; :', 'program', ...words], QUIET))

  // The network's configuration, an attachment, and the links.
  const netd = '/etc/cni/net.d'
  mkdirSync(netd, { recursive: true })
  const args = { token: s(), deep: [{ 'api-key': s() }], header: `Authorization: Bearer ${s()}` }
  writeFileSync(
    join(netd, '10-a.conflist'),
    JSON.stringify({ cniVersion: '1.0.0', name: 'a', plugins: [{ type: 'bridge', args }] }, null, 1),
  )
  writeFileSync(join(netd, '20-b\n..%2f.conf'), `{"name": "b", "type": "bridge", "password": "${s()}`)
  writeFileSync(
    Buffer.concat([Buffer.from(`${netd}/30-`), Buffer.from([0xff, 0xfe, 0x80]), Buffer.from('.conf')]),
    '{}',
  )
  const conf = {
    cniVersion: '1.0.0',
    name: 'a',
    type: 'bridge',
    bridge: 'br0',
    ipam: { type: 'host-local', subnet: '10.64.0.0/24' },
  }
  const pod = await execa('ip', ['netns', 'add', 'sysdump-pod'])
  assert.equal(pod.exitCode, 0)
  const container = `c${randomBytes(4).toString('hex')}`
  const answer = await plugin(
    'bridge',
    {
      command: 'ADD',
      conf,
      containerId: container,
      netns: '/run/netns/sysdump-pod',
      args: `IgnoreUnknown=1;K8S_POD_NAMESPACE=${SPACE};K8S_POD_NAME=${POD};TOKEN=${s()}`,
    },
    ns,
  )
  assert.equal(answer.status, 0, answer.stdout)
  const journal = '/run/cni/plumb/attachments'
  for (const name of [`${'n'.repeat(250)}.conf`, 'line\nend', '..x', '-rf'])
    writeFileSync(join(journal, name), JSON.stringify({ owner: name, conf: { psk: s(), env: { A: s() } } }))
  await ns.exec([
    'sh',
    '-c',
    'ip link add name "$(printf "a\\377\\n")" type veth peer name "\\"\\$(id)" 2>/dev/null; ip link add name "$(printf "x\\377y")" type veth peer name "..%s;\'"',
  ])
  await ns.ip('link', 'set', 'dev', 'eth0', 'alias', `password=${s()}`)
  const [eth0] = await ns.json('link', 'show', 'dev', 'eth0')

  // Logs.
  await execa('mount', ['-t', 'tmpfs', 'tmpfs', '/var/log'])
  const stamp = new Date().toISOString()
  for (const [folder, text] of [
    [`${SPACE}_plumb-7x2lp_1/agent`, `logging in with password "${s()}", seen ${bgp} ${kubeToken}`],
    [
      'kube-system_coredns-5d-9_2/coredns',
      `Authorization: Bearer ${s()} ${Buffer.from(` ${etcd}`).toString('base64')}`,
    ],
    ['kube-system_kube-proxy-x_3/kube-proxy', `{"msg":"{\\"token\\":\\"${s()}\\"}"}`],
    [`${SPACE}_${POD}_4/app`, `of the pod of a user: ${s()}`],
  ] as const) {
    mkdirSync(`/var/log/pods/${folder}`, { recursive: true })
    writeFileSync(`/var/log/pods/${folder}/0.log`, `${stamp} stderr F ${text}\n`)
  }
  children.push(await journald())
  for (const text of [
    `logged in with password "${s()}"`,
    `Authorization: Bearer ${s()}`,
    `env DB_PASSWORD=${s()} SECRET_KEY: ${s()}`,
    `{"level":"info","msg":"{\\"token\\":\\"${s()}\\"}"}`,
    `dialing https://user:${s()}@10.64.0.1:2379/`,
    `config ${Buffer.from(`password: ${s()}`).toString('base64')}`,
    // Only the files, the environment and the command line say that these are secrets.
    `seen ${bgp} ${etcd} ${kubeToken} ${kubePassword} ${inEnvironment} ${wireguard} ${peerKey}`,
    `encoded ${[bgp, etcd, kubeToken, inEnvironment].map((one) => Buffer.from(` ${one}`).toString('base64')).join(' ')}`,
    `${pem}`,
    `pod ${SPACE}/${POD} on ${NODE}, peer ${PEER}`,
  ])
    await say('kubelet', text)
  await execa('journalctl', ['--sync'])
  const loggedAt = Date.now()
  await agent.ready(30_000)
  return { loggedAt, secrets: secrets.all, api, container, mac: eth0?.['address'] as string }
}

function serveObjects(api: KubeServer, secrets: Secrets): void {
  const s = () => secrets.make()
  const list = (...items: object[]) => Response.json({ items, metadata: { resourceVersion: '1' } })
  const pods = [
    {
      metadata: {
        name: POD,
        namespace: SPACE,
        annotations: { 'flannel.alpha.coreos.com/x': '1', 'vault/inject': s(), last: JSON.stringify({ env: s() }) },
        managedFields: [{ a: s() }],
      },
      spec: {
        nodeName: NODE,
        containers: [
          {
            env: [
              { name: 'A', value: s() },
              { name: 'B', value: s() },
            ],
            args: ['--password', s(), `--x-token=${s()}`],
            command: ['sh', '-c', `curl -H 'X-Api-Key: ${s()}' x`],
          },
        ],
      },
    },
    { metadata: { name: `../../${'a'.repeat(255)}\n"\u0000`, namespace: '\u001b[2J', annotations: null } },
  ]
  const events = [
    {
      metadata: { name: 'e', namespace: SPACE },
      source: { component: 'kubelet', host: PEER },
      message: `pull failed: Bearer ${s()} of ${SPACE}/${POD} on ${PEER}`,
    },
  ]
  const nodes = 'nobody may'
  api.fault = ({ url }) => {
    if (url.pathname === '/api/v1/pods') return list(...pods)
    if (url.pathname === '/api/v1/events') return list(...events)
    if (url.pathname === '/api/v1/nodes')
      return Response.json({ message: `${nodes}, token=${secrets.all[0]}` }, { status: 403 })
    return list()
  }
}

// The journal of systemd, without systemd.
async function journald(): Promise<ReturnType<typeof Bun.spawn>> {
  mkdirSync('/run/systemd/journal', { recursive: true })
  mkdirSync('/run/log/journal', { recursive: true })
  const child = Bun.spawn(['/lib/systemd/systemd-journald'], QUIET)
  await until(() => existsSync('/run/systemd/journal/socket'))
  return child
}

// journalctl takes OBJECT_SYSTEMD_UNIT of root for the unit (journalctl, "--unit").
async function say(unit: string, message: string): Promise<void> {
  for (const line of message.split('\n'))
    await execa('logger', ['--journald'], { input: `MESSAGE=${line}\nOBJECT_SYSTEMD_UNIT=${unit}.service\n` })
}

/** Runs the command on a node and unpacks what it made: the text of each file, by its name. */
async function dump(ns: Namespace, dir: string, to: string, ...more: string[]): Promise<Map<string, string>> {
  const argv = [
    PLUMB,
    'sysdump',
    '-o',
    `${to}.tar.gz`,
    '--socket',
    join(dir, 'agent.sock'),
    '--subnet-file',
    join(dir, 'subnet.env'),
  ]
  const { status, stderr } = await ns.exec([...argv, ...more])
  assert.equal(status, 0, stderr)
  mkdirSync(to)
  await execa('tar', ['xzf', `${to}.tar.gz`, '--strip-components', '1', '-C', to])
  const found = readdirSync(to, { recursive: true, withFileTypes: true }).filter((one) => one.isFile())
  return new Map(
    found.map(({ parentPath, name }) => {
      const path = join(parentPath, name)
      return [relative(to, path), readFileSync(path, 'utf8')] as const
    }),
  )
}

function refuseSecrets(files: ReadonlyMap<string, string>, secrets: readonly string[], what: string): void {
  for (const [file, text] of files)
    for (const [i, secret] of secrets.entries())
      for (const form of [secret, ...encoded(secret)])
        assert.ok(!text.includes(form), `${what}: secret ${i} in ${file}: ${around(text, form)}`)
}

// Base64 of a secret at each offset, without the signs that depend on what stands around it.
function encoded(secret: string): string[] {
  return [0, 1, 2].map((offset) =>
    Buffer.concat([Buffer.alloc(offset), Buffer.from(secret)])
      .toString('base64')
      .slice(4, -4),
  )
}

function around(text: string, part: string): string {
  const at = text.indexOf(part)
  return JSON.stringify(text.slice(Math.max(0, at - 100), at + 100))
}

function names(file: string): string[] {
  const text = existsSync(file) ? readFileSync(file, 'utf8') : ''
  return text
    .split('\n')
    .map((line) => line.split(' ')[0] ?? '')
    .sort()
}
