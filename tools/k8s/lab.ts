// A Kubernetes cluster on this machine, with a control plane and nodes. Each has network, mount, UTS, IPC and PID
// namespaces of its own, and an overlay as its root. `build.ts` makes the programs, `up` starts a cluster, and `down`
// ends all of it.
import {
  appendFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { execa } from 'execa'
import { stringify } from 'yaml'

/** Where build.ts puts what it builds. */
export const LAB = process.env['PLUMB_K8S'] ?? '/var/cache/plumb/k8s'
const BIN = join(LAB, 'bin')
const PROGRAMS = [
  'etcd',
  'kube-apiserver',
  'kube-controller-manager',
  'kube-scheduler',
  'kubectl',
  'kubelet',
  'kube-proxy',
  'containerd',
  'containerd-shim-runc-v2',
  'ctr',
]
const PAUSE = 'registry.k8s.io/pause:3.10.2'
/** The machine of the control plane, and the router between the nodes. */
const CONTROL = 'cp'
const [API, API6] = ['10.78.0.254', 'fd78::fe']
const PATH = `${BIN}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin`
/** cgroup v1: the kubelet of each node has a root of its own. */
const CGROUPS = ['cpu', 'cpuacct', 'cpuset', 'memory', 'devices', 'freezer', 'blkio', 'pids', 'systemd']
/** The kubelet sets these, which belong to the whole kernel: it gets files in their place. */
const SYSCTLS = [
  'vm/overcommit_memory',
  'vm/panic_on_oom',
  'kernel/panic',
  'kernel/panic_on_oops',
  'kernel/keys/root_maxkeys',
  'kernel/keys/root_maxbytes',
]

// PID 1 of a machine: a private root, and then it collects what nobody waits for. $1 is its name, $2 its folder, $3 the
// programs, $4 the folder of all machines.
const MACHINE = `
mount --make-rprivate /
hostname "$1"
mkdir -p "$2/upper" "$2/work" "$2/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$2/upper,workdir=$2/work" "$2/root"
cd "$2/root"
mount -t proc proc proc; mount -t sysfs sysfs sys; mount --rbind /sys/fs/cgroup sys/fs/cgroup; mount --rbind /dev dev; mount -t tmpfs tmpfs run
mkdir -p run/lock run/netns var/lib/containerd var/lib/kubelet etc/cni/net.d opt/cni/bin .old ".$4" ".$3"
rm -rf etc/cni/net.d/* opt/cni/bin/* var/lib/cni
for dir in containerd kubelet; do mkdir -p "$2/$dir"; mount --bind "$2/$dir" "var/lib/$dir"; done
mount --bind "$4" ".$4"; mount --bind "$3" ".$3"
for key in ${SYSCTLS.join(' ')}; do cat "proc/sys/$key" >"$2/$(basename $key)"; mount --bind "$2/$(basename $key)" "proc/sys/$key"; done
pivot_root . .old; cd /; umount -l /.old; mount --make-rshared /
echo "$1" >/etc/hostname; : >/etc/resolv.conf
sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1 net.ipv4.conf.all.rp_filter=0
touch "$2/started"
while :; do sleep 1; done`

/** What a cluster is to be. */
export interface Wish {
  /** Names of the nodes: `n1`, `n2`. */
  readonly nodes: readonly string[]
  /** Both families: nodes fd78::N, pods fd44::/48, services fd96::/112. */
  readonly isDual?: boolean
  /** Whether kube-proxy runs on every node. Without it, Services need another proxy. True unless given. */
  readonly hasKubeProxy?: boolean
  /** Images for every node besides the lab's own, as archives. */
  readonly images?: readonly string[]
}

/** What a program printed, and how it ended. */
export interface Finished {
  readonly status: number
  readonly stdout: string
  readonly stderr: string
}

/** A machine of the lab. */
export interface Machine {
  readonly name: string
  readonly ip: string
  /** Runs a program in it; never rejects. */
  exec(
    argv: readonly string[],
    options?: { readonly stdin?: string; readonly env?: Readonly<Record<string, string>> },
  ): Promise<Finished>
  /** Starts a program that goes on; its output goes to a log in the machine's folder. */
  start(name: string, argv: readonly string[]): void
  /** Ends a program that `start` began, and waits for its end. */
  stop(name: string): Promise<void>
  readonly log: (name: string) => string
}

/** A cluster that runs. */
export interface Cluster {
  readonly control: Machine
  readonly nodes: readonly Machine[]
  readonly kubeconfig: string
  /** kubectl as the administrator: what it printed. Throws Error with what it said when it fails. */
  kubectl(args: readonly string[], stdin?: string): Promise<string>
  stopApi(): Promise<void>
  startApi(): Promise<void>
  /** Ends the kubelet, containerd and every container of a node, and starts it again as after a reboot. */
  reboot(name: string): Promise<void>
  down(): Promise<void>
}

/** Why there can be no cluster here; undefined when there can. */
export function missing(): string | undefined {
  const absent = PROGRAMS.filter((name) => !existsSync(join(BIN, name)))
  if (absent.length > 0) return `no ${absent.join(', ')} below ${BIN}: npm run test:kubernetes builds them with Go`
  return existsSync('/usr/sbin/runc') || existsSync('/usr/bin/runc') ? undefined : 'no runc'
}

/**
 * Runs a program that starts a cluster of these nodes, and may be killed. Gives it a folder for TMPDIR. Afterwards
 * removes what does not end with the program's namespaces: the folder, and the control groups.
 */
export async function sweeping<T>(nodes: readonly string[], work: (dir: string) => Promise<T>): Promise<T> {
  const dir = mkdtempSync(join(tmpdir(), 'plumb-demo-'))
  try {
    return await work(dir)
  } finally {
    for (const name of nodes) await removeCgroups(name)
    rmSync(dir, { recursive: true, force: true })
  }
}

/** Starts a cluster without a network for its pods. */
export async function up({ nodes, isDual = false, hasKubeProxy = true, images = [] }: Wish): Promise<Cluster> {
  const dir = mkdtempSync(join(tmpdir(), 'plumb-lab-'))
  const ended: (() => Promise<void>)[] = []
  const down = async () => {
    for (const end of ended.splice(0).reverse()) await end()
    rmSync(dir, { recursive: true, force: true })
  }
  try {
    await credentials(dir, nodes)
    const control = await machine(CONTROL, API, dir, ended, () => underlay(isDual))
    const made: Machine[] = []
    // Last of all, when nobody is in them.
    for (const name of nodes) ended.unshift(() => removeCgroups(name))
    for (const [i, name] of nodes.entries())
      made.push(await machine(name, `10.78.0.${i + 1}`, dir, ended, () => attach(name, i + 1, isDual)))
    const kubeconfig = join(dir, 'admin.conf')
    const kubectl = async (args: readonly string[], stdin = '') => {
      const { status, stdout, stderr } = await control.exec(['kubectl', ...args], {
        stdin,
        env: { KUBECONFIG: kubeconfig },
      })
      if (status !== 0) throw new Error(`kubectl ${args.join(' ')}: ${stderr || stdout}`)
      return stdout
    }
    const startApi = async () => {
      control.start('kube-apiserver', apiServer(dir, isDual))
      await poll('the API server', 180_000, () => kubectl(['get', '--raw', '/readyz']))
    }
    control.start('etcd', [
      'etcd',
      '--data-dir',
      join(dir, 'cp/etcd'),
      '--unsafe-no-fsync',
      '--listen-peer-urls',
      'http://127.0.0.1:2380',
      '--listen-client-urls',
      'http://127.0.0.1:2379',
      '--advertise-client-urls',
      'http://127.0.0.1:2379',
    ])
    await startApi()
    const cidrs = isDual ? '10.244.0.0/16,fd44::/48' : '10.244.0.0/16'
    control.start('kube-controller-manager', [
      'kube-controller-manager',
      `--kubeconfig=${kubeconfig}`,
      '--allocate-node-cidrs',
      `--cluster-cidr=${cidrs}`,
      '--leader-elect=false',
      `--service-account-private-key-file=${dir}/sa.key`,
      `--root-ca-file=${dir}/ca.crt`,
    ])
    control.start('kube-scheduler', ['kube-scheduler', `--kubeconfig=${kubeconfig}`, '--leader-elect=false'])
    const archives = [
      ...readdirSync(join(LAB, 'images')).flatMap((name) => (name.endsWith('.tar') ? [join(LAB, 'images', name)] : [])),
      ...images,
    ]
    const begin = async (node: Machine) =>
      startNode(node, { dir, cidrs, isDual, hasKubeProxy, archives, index: nodes.indexOf(node.name) + 1 })
    await Promise.all(made.map(begin))
    await poll('the nodes and their pod CIDRs', 120_000, async () => {
      const found = await kubectl(['get', 'nodes', '-o', 'jsonpath={.items[*].spec.podCIDR}'])
      if (found.split(' ').filter(Boolean).length !== nodes.length) throw new Error(`${found}`)
    })
    await reachPods(made, kubectl)
    return {
      control,
      nodes: made,
      kubeconfig,
      kubectl,
      stopApi: () => control.stop('kube-apiserver'),
      startApi,
      async reboot(name) {
        const node = made.find((one) => one.name === name) as Machine
        for (const program of ['kubelet', 'kube-proxy', 'containerd']) await node.stop(program)
        await node.exec([
          'sh',
          '-c',
          "for p in $(ls /proc | grep '^[0-9]*$'); do [ $p = 1 ] || [ $p = $$ ] || grep -qs sleep /proc/$p/comm || kill -9 $p 2>/dev/null; done; ip -o link | grep -v 'lo:\\|eth0' | cut -d: -f2 | cut -d@ -f1 | while read l; do ip link del $l; done; nft flush ruleset; ip route flush proto 112; for n in $(ip netns list | cut -d' ' -f1); do ip netns del $n; done; rm -rf /run/cni /run/flannel /run/plumb /run/containerd; for m in $(grep -o ' /var/lib/kubelet/pods/[^ ]*' /proc/mounts); do umount -l $m; done",
        ])
        await begin(node)
      },
      down,
    }
  } catch (cause) {
    await down()
    throw cause
  }
}

// The API server's proxy asks pods directly. Elsewhere the machine of the control plane has an agent, too.
async function reachPods(
  nodes: readonly Machine[],
  kubectl: (args: readonly string[]) => Promise<string>,
): Promise<void> {
  for (const { name, ip: address } of nodes) {
    const cidrs = (await kubectl(['get', 'node', name, '-o', 'jsonpath={.spec.podCIDRs[*]}'])).split(' ')
    for (const cidr of cidrs)
      await ip(
        cidr.includes(':')
          ? `-n k8s-${CONTROL} -6 route add ${cidr} via fd78::${address.split('.').at(-1)}`
          : `-n k8s-${CONTROL} route add ${cidr} via ${address}`,
      )
  }
}

interface NodeWish {
  readonly dir: string
  readonly cidrs: string
  readonly isDual: boolean
  readonly hasKubeProxy: boolean
  readonly archives: readonly string[]
  readonly index: number
}

async function startNode(
  node: Machine,
  { dir, cidrs, isDual, hasKubeProxy, archives, index }: NodeWish,
): Promise<void> {
  const own = join(dir, node.name)
  for (const name of CGROUPS)
    if (existsSync(`/sys/fs/cgroup/${name}`)) mkdirSync(`/sys/fs/cgroup/${name}/k8s-${node.name}`, { recursive: true })
  for (const file of ['cpuset.cpus', 'cpuset.mems'])
    if (existsSync(`/sys/fs/cgroup/cpuset/${file}`))
      writeFileSync(`/sys/fs/cgroup/cpuset/k8s-${node.name}/${file}`, readFileSync(`/sys/fs/cgroup/cpuset/${file}`))
  writeFileSync(join(own, 'containerd.toml'), CONTAINERD)
  writeFileSync(join(own, 'kubelet.yaml'), stringify(kubelet(node.name)))
  writeFileSync(
    join(own, 'proxy.yaml'),
    stringify({
      apiVersion: 'kubeproxy.config.k8s.io/v1alpha1',
      kind: 'KubeProxyConfiguration',
      mode: 'nftables',
      hostnameOverride: node.name,
      clientConnection: { kubeconfig: join(dir, 'proxy.conf') },
      clusterCIDR: cidrs,
      oomScoreAdj: 0,
      conntrack: { maxPerCore: 0, min: 0 },
    }),
  )
  node.start('containerd', ['containerd', '-c', join(own, 'containerd.toml')])
  await poll('containerd', 60_000, async () => {
    const { status, stderr } = await node.exec(['ctr', 'version'])
    if (status !== 0) throw new Error(stderr)
  })
  for (const archive of archives) {
    const { status, stderr } = await node.exec(['ctr', '-n', 'k8s.io', 'images', 'import', '--local', archive])
    if (status !== 0) throw new Error(`Cannot import ${archive}: ${stderr}`)
  }
  const address = isDual ? `10.78.0.${index},fd78::${index}` : `10.78.0.${index}`
  node.start('kubelet', [
    'kubelet',
    `--config=${own}/kubelet.yaml`,
    `--kubeconfig=${dir}/${node.name}.conf`,
    `--hostname-override=${node.name}`,
    `--node-ip=${address}`,
    `--node-labels=topology.kubernetes.io/zone=z${index % 3}`,
  ])
  if (hasKubeProxy) node.start('kube-proxy', ['kube-proxy', `--config=${own}/proxy.yaml`])
}

// No CAP_SYS_RESOURCE here: runc may not lower an oom_score_adj.
const CONTAINERD = `version = 3
[plugins."io.containerd.cri.v1.images"]
snapshotter = "overlayfs"
[plugins."io.containerd.cri.v1.images".pinned_images]
sandbox = "${PAUSE}"
[plugins."io.containerd.cri.v1.runtime"]
restrict_oom_score_adj = true
disable_apparmor = true
[plugins."io.containerd.cri.v1.runtime".cni]
bin_dirs = ["/opt/cni/bin"]
conf_dir = "/etc/cni/net.d"
`

function kubelet(name: string): object {
  return {
    apiVersion: 'kubelet.config.k8s.io/v1beta1',
    kind: 'KubeletConfiguration',
    failCgroupV1: false,
    cgroupDriver: 'cgroupfs',
    cgroupRoot: `/k8s-${name}`,
    enforceNodeAllocatable: ['none'],
    oomScoreAdj: 0,
    failSwapOn: false,
    containerRuntimeEndpoint: 'unix:///run/containerd/containerd.sock',
    authentication: { anonymous: { enabled: true }, webhook: { enabled: false } },
    authorization: { mode: 'AlwaysAllow' },
    clusterDNS: ['10.96.0.10'],
    clusterDomain: 'cluster.local',
    resolvConf: '/etc/resolv.conf',
    evictionHard: Object.fromEntries(
      ['memory.available', 'nodefs.available', 'imagefs.available', 'nodefs.inodesFree', 'imagefs.inodesFree'].map(
        (one) => [one, '0%'],
      ),
    ),
    imageGCHighThresholdPercent: 100,
    syncFrequency: '10s',
    volumeStatsAggPeriod: '-1s',
  }
}

function apiServer(dir: string, isDual: boolean): string[] {
  const files = {
    'tls-cert-file': 'api.crt',
    'tls-private-key-file': 'api.key',
    'client-ca-file': 'ca.crt',
    'token-auth-file': 'tokens.csv',
    'service-account-key-file': 'sa.key',
    'service-account-signing-key-file': 'sa.key',
  }
  const given = Object.entries(files).map(([name, file]) => `--${name}=${dir}/${file}`)
  const services = isDual ? '10.96.0.0/16,fd96::/112' : '10.96.0.0/16'
  return [
    'kube-apiserver',
    '--etcd-servers=http://127.0.0.1:2379',
    `--advertise-address=${API}`,
    '--secure-port=6443',
    ...given,
    '--service-account-issuer=https://kubernetes.default.svc',
    `--service-cluster-ip-range=${services}`,
    '--authorization-mode=Node,RBAC',
    '--allow-privileged',
    '--kubelet-preferred-address-types=InternalIP',
    '--profiling=false',
  ]
}

// One authority, one certificate for the server, and a token for everybody else.
async function credentials(dir: string, nodes: readonly string[]): Promise<void> {
  const names = [
    'IP:10.78.0.254',
    'IP:10.96.0.1',
    'IP:127.0.0.1',
    'DNS:kubernetes',
    'DNS:kubernetes.default',
    'DNS:kubernetes.default.svc',
    'DNS:localhost',
  ]
  writeFileSync(join(dir, 'api.ext'), `subjectAltName=${names.join()}`)
  const make = 'openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes'
  await execa(
    'sh',
    [
      '-ec',
      `${make} -x509 -keyout ca.key -out ca.crt -subj /CN=lab -days 3650; ${make} -keyout api.key -out api.csr -subj /CN=kube-apiserver; openssl x509 -req -in api.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 3650 -out api.crt -extfile api.ext; openssl genrsa -out sa.key 2048`,
    ],
    { cwd: dir },
  )
  const users = [
    ['admin', 'admin', 'system:masters'],
    ['proxy', 'system:kube-proxy', ''],
    ...nodes.map((name) => [name, `system:node:${name}`, 'system:nodes']),
  ] as const
  writeFileSync(
    join(dir, 'tokens.csv'),
    users.map(([token, user, group]) => `token-${token},${user},${user},"${group}"\n`).join(''),
  )
  for (const [token] of users) writeFileSync(join(dir, `${token}.conf`), kubeconfig(dir, `token-${token}`))
}

function kubeconfig(dir: string, token: string): string {
  const cluster = {
    name: 'lab',
    cluster: { server: `https://${API}:6443`, 'certificate-authority': join(dir, 'ca.crt') },
  }
  return stringify({
    apiVersion: 'v1',
    kind: 'Config',
    clusters: [cluster],
    users: [{ name: 'u', user: { token } }],
    contexts: [{ name: 'lab', context: { cluster: 'lab', user: 'u' } }],
    'current-context': 'lab',
  })
}

async function underlay(isDual: boolean): Promise<void> {
  await ip(`-n k8s-${CONTROL} link add lan type bridge`)
  await ip(`-n k8s-${CONTROL} addr add ${API}/24 dev lan`)
  await ip(`-n k8s-${CONTROL} link set lan up`)
  if (isDual) await ip(`-n k8s-${CONTROL} addr add ${API6}/64 dev lan nodad`)
}

async function attach(name: string, index: number, isDual: boolean): Promise<void> {
  await ip(`link add v${name} netns k8s-${CONTROL} type veth peer name eth0 netns k8s-${name}`)
  await ip(`-n k8s-${CONTROL} link set v${name} master lan up`)
  await ip(`-n k8s-${name} addr add 10.78.0.${index}/24 dev eth0`)
  await ip(`-n k8s-${name} link set eth0 up`)
  await ip(`-n k8s-${name} route add default via ${API}`)
  if (!isDual) return
  await ip(`-n k8s-${name} addr add fd78::${index}/64 dev eth0 nodad`)
  await ip(`-n k8s-${name} -6 route add default via ${API6}`)
}

async function ip(line: string): Promise<void> {
  await execa('ip', line.split(' '))
}

async function machine(
  name: string,
  address: string,
  dir: string,
  ended: (() => Promise<void>)[],
  wire: () => Promise<void>,
): Promise<Machine> {
  const own = join(dir, name)
  mkdirSync(own)
  await ip(`netns add k8s-${name}`)
  ended.push(() => ip(`netns del k8s-${name}`))
  await ip(`-n k8s-${name} link set lo up`)
  await wire()
  const argv = [
    'nsenter',
    `--net=/run/netns/k8s-${name}`,
    'unshare',
    '-m',
    '-u',
    '-i',
    '-p',
    '-f',
    '--kill-child=KILL',
    'sh',
    '-ec',
    MACHINE,
    'machine',
    name,
    own,
    LAB,
    dir,
  ]
  // The lab's folder of keys is seen by every machine.
  const child = Bun.spawn(argv, {
    stdin: 'ignore',
    stdout: openSync(join(own, 'init.log'), 'a'),
    stderr: openSync(join(own, 'init.log'), 'a'),
    env: { PATH },
  })
  ended.push(async () => {
    child.kill('SIGKILL')
    await child.exited
  })
  await poll(`the machine ${name}`, 30_000, async () => {
    if (!existsSync(join(own, 'started'))) throw new Error(readFileSync(join(own, 'init.log'), 'utf8'))
  })
  const first = readFileSync(`/proc/${child.pid}/task/${child.pid}/children`, 'utf8').trim().split(' ')[0]
  const inside = ['nsenter', '-t', `${first}`, '-m', '-u', '-i', '-n', '-p']
  await execa(inside[0] as string, [...inside.slice(1), 'mkdir', '-p', dir])
  const running = new Map<string, ReturnType<typeof Bun.spawn>>()
  const log = (program: string) =>
    existsSync(join(own, `${program}.log`)) ? readFileSync(join(own, `${program}.log`), 'utf8') : ''
  return {
    name,
    ip: address,
    log,
    async exec(what, { stdin = '', env = {} } = {}) {
      const done = await execa(inside[0] as string, [...inside.slice(1), ...what], {
        input: stdin,
        env: { PATH, HOME: '/root', ...env },
        extendEnv: false,
        reject: false,
        stripFinalNewline: false,
      })
      return { status: done.exitCode ?? -1, stdout: done.stdout ?? '', stderr: done.stderr ?? '' }
    },
    start(program, what) {
      const file = join(own, `${program}.log`)
      appendFileSync(file, `--- ${what.join(' ')}\n`)
      const out = openSync(file, 'a')
      running.set(
        program,
        Bun.spawn([...inside, ...what], { stdin: 'ignore', stdout: out, stderr: out, env: { PATH, HOME: '/root' } }),
      )
    },
    async stop(program) {
      const process = running.get(program)
      if (!process) return
      // nsenter waits for its child, which a signal to nsenter does not reach.
      for (const pid of childrenOf(process.pid)) globalThis.process.kill(pid, 'SIGKILL')
      await process.exited
      running.delete(program)
    },
  }
}

function childrenOf(pid: number): number[] {
  try {
    return readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8').trim().split(' ').filter(Boolean).map(Number)
  } catch {
    return []
  }
}

async function removeCgroups(name: string): Promise<void> {
  const remove = `for i in $(seq 50); do find /sys/fs/cgroup/*/k8s-${name} -depth -type d -exec rmdir {} \\; 2>/dev/null; ls -d /sys/fs/cgroup/*/k8s-${name} >/dev/null 2>&1 || break; sleep .1; done`
  await execa('sh', ['-c', remove], { reject: false })
}

async function poll(what: string, ms: number, check: () => Promise<unknown>): Promise<void> {
  for (const end = Date.now() + ms; ; await Bun.sleep(200)) {
    try {
      await check()
      return
    } catch (cause) {
      if (Date.now() > end) throw new Error(`Waited ${ms / 1000} s for ${what}: ${(cause as Error).message}`, { cause })
    }
  }
}
