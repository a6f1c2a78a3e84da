import { existsSync, mkdirSync, readFileSync, realpathSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { execa } from 'execa'
import { install } from '../../scripts/packages.ts'
import { LAB } from './lab.ts'
import { dockerArchive } from './pod-image.ts'

// Builds a Kubernetes of today through the Go module proxy, into a cache outside the checkout: control plane, kubelet,
// kube-proxy, containerd, the end-to-end tests, and the images that they start. What is there is not built again.
// node_modules/.bin/bun tools/k8s/build.ts [apiserver] [proxy] [cluster] [e2e] [helm]

const KUBERNETES = 'v1.37.2'
const CONTAINERD = 'v2.4.2'
const COREDNS = 'v1.15.0'
const PLUGINS = 'v1.9.1'
const HELM = 'v3.18.0'
/** Images that the lab's pods and the upstream tests name, by what is in them. */
const PAUSE = 'registry.k8s.io/pause:3.10.2'
const E2E = 'registry.k8s.io/e2e-test-images'
const [BIN, SOURCE, IMAGES, REFERENCE] = ['bin', 'src', 'images', 'cni-ref'].map((dir) => join(LAB, dir)) as [
  string,
  string,
  string,
  string,
]
const ENV = {
  CGO_ENABLED: '0',
  GOFLAGS: `-mod=mod -buildvcs=false -trimpath -p=${process.env['JOBS'] ?? '2'}`,
  GOTOOLCHAIN: 'local',
}

const PARTS: Readonly<Record<string, () => Promise<void>>> = { apiserver, proxy, cluster, e2e, helm }

async function main(): Promise<void> {
  const wanted = process.argv.slice(2)
  const unknown = wanted.find((one) => !Object.hasOwn(PARTS, one))
  if (unknown !== undefined)
    throw new Error(`Cannot build ${JSON.stringify(unknown)}: want one of ${Object.keys(PARTS).join(', ')}`)
  if ((await execa('go', ['version'], { reject: false })).exitCode !== 0)
    throw new Error('Cannot build Kubernetes: there is no Go (1.26 or later); want it on PATH')
  for (const dir of [BIN, SOURCE, IMAGES, REFERENCE]) mkdirSync(dir, { recursive: true })
  await module()
  for (const part of wanted.length > 0 ? wanted : ['apiserver', 'cluster']) await PARTS[part]?.()
}

// k8s.io/kubernetes is no module to `go install`: its go.mod replaces ./staging/…. A module of ours requires it, and
// replaces each staging module by its release.
async function module(): Promise<void> {
  const file = join(SOURCE, 'go.mod')
  if (existsSync(file) && readFileSync(file, 'utf8').includes(`kubernetes ${KUBERNETES}\n`)) return
  const { stdout } = await execa('go', ['mod', 'download', '-json', `k8s.io/kubernetes@${KUBERNETES}`], {
    cwd: '/tmp',
    env: ENV,
  })
  const text = readFileSync((JSON.parse(stdout) as { GoMod: string }).GoMod, 'utf8')
  const versions = text.split('\n').filter((line) => /^(go|godebug) /.test(line))
  const staging = [...text.matchAll(/^\t(k8s\.io\/[a-z-]+) => \.\/staging\//gm)].map(
    ([, name]) => `\t${name} => ${name} v0.${KUBERNETES.slice('v1.'.length)}`,
  )
  writeFileSync(
    file,
    ['module k8slab', ...versions, `require k8s.io/kubernetes ${KUBERNETES}`, 'replace (', ...staging, ')', ''].join(
      '\n',
    ),
  )
}

async function apiserver(): Promise<void> {
  await kubernetes('kube-apiserver')
  await timed('etcd', BIN, () =>
    go(['build', '-ldflags', '-s -w', '-o', join(BIN, 'etcd'), 'go.etcd.io/etcd/server/v3']),
  )
}

async function proxy(): Promise<void> {
  await kubernetes('kube-proxy')
}

async function cluster(): Promise<void> {
  await apiserver()
  await proxy()
  for (const name of ['kube-controller-manager', 'kube-scheduler', 'kubectl', 'kubelet']) await kubernetes(name)
  const containerd = 'github.com/containerd/containerd/v2'
  const tags = [
    '-tags',
    'no_btrfs no_zfs no_devmapper',
    '-ldflags',
    `-s -w -X ${containerd}/version.Version=${CONTAINERD.slice(1)}`,
  ]
  for (const name of ['containerd', 'ctr', 'containerd-shim-runc-v2'])
    await timed(name, BIN, () => installed(BIN, tags, `${containerd}/cmd/${name}@${CONTAINERD}`))
  const plugins = 'github.com/containernetworking/plugins/plugins'
  for (const path of [
    'main/bridge',
    'main/loopback',
    'ipam/host-local',
    'meta/portmap',
    'meta/firewall',
    'meta/bandwidth',
  ])
    await timed(path.split('/')[1] as string, REFERENCE, () =>
      installed(REFERENCE, ['-ldflags', '-s -w'], `${plugins}/${path}@${PLUGINS}`),
    )
  await helm()
  await images()
}

async function helm(): Promise<void> {
  await timed('helm', BIN, () => installed(BIN, ['-ldflags', '-s -w'], `helm.sh/helm/v3/cmd/helm@${HELM}`))
}

async function e2e(): Promise<void> {
  await cluster()
  await timed('e2e.test', BIN, () =>
    go(['test', '-c', '-vet=off', '-ldflags', flags(), '-o', join(BIN, 'e2e.test'), 'k8s.io/kubernetes/test/e2e']),
  )
  await timed('ginkgo', BIN, () => go(['build', '-o', join(BIN, 'ginkgo'), 'github.com/onsi/ginkgo/v2/ginkgo']))
}

async function images(): Promise<void> {
  await install([
    { name: 'busybox', shows: 'busybox', why: "the lab's pods run its commands" },
    { name: 'runc', shows: 'runc', why: 'containerd starts containers with it' },
    { name: 'bind9-dnsutils', shows: 'dig', why: 'the upstream tests ask name servers with it' },
    ...['curl', 'wget', 'socat', 'iperf'].map((name) => ({
      name,
      shows: name,
      why: 'the upstream tests run it in their pods',
    })),
    { name: 'netcat-openbsd', shows: 'nc', why: 'the upstream tests run it in their pods' },
    { name: 'iproute2', shows: 'ip', why: 'the upstream tests run it in their pods' },
    { name: 'nftables', shows: 'nft', why: 'the upstream tests look at the rules of kube-proxy with it' },
    { name: 'iptables', shows: 'iptables', why: 'the upstream tests look at the rules of kube-proxy with it' },
    { name: 'conntrack', shows: 'conntrack', why: 'the upstream tests look at connections with it' },
    { name: 'gcc', shows: 'gcc', why: "it makes the pods' pause program" },
  ])
  await timed('agnhost', BIN, () =>
    go(['build', '-ldflags', flags(), '-o', join(BIN, 'agnhost'), 'k8s.io/kubernetes/test/images/agnhost']),
  )
  await timed('regression-issue-74839', BIN, () =>
    go([
      'build',
      '-ldflags',
      flags(),
      '-o',
      join(BIN, 'regression-issue-74839'),
      'k8s.io/kubernetes/test/images/regression-issue-74839',
    ]),
  )
  await timed('coredns', BIN, () => installed(BIN, ['-ldflags', '-s -w'], `github.com/coredns/coredns@${COREDNS}`))
  const { stdout: source } = await execa('go', ['list', '-m', '-f', '{{.Dir}}', 'k8s.io/kubernetes'], {
    cwd: SOURCE,
    env: ENV,
  })
  await timed(
    'pause',
    BIN,
    async () =>
      void (await execa('gcc', [
        '-Os',
        '-static',
        '-o',
        join(BIN, 'pause'),
        join(source, 'build/pause/linux/pause.c'),
      ])),
  )
  const paths = `${process.env['PATH']}:/usr/sbin:/sbin`
  const tool = (name: string) => ({
    from: realpathSync(Bun.which(name, { PATH: paths }) as string),
    to: `/usr/bin/${name}`,
  })
  // The tests want a bash for sh: busybox's shell runs its own applets before what PATH has.
  const [busybox, agnhost, sh] = [
    tool('busybox'),
    { from: join(BIN, 'agnhost'), to: '/agnhost' },
    { ...tool('bash'), to: '/usr/bin/sh' },
  ]
  const porter = join(source, 'test/images/agnhost/porter')
  const certificates = ['localhost.crt', 'localhost.key'].map((name) => ({ from: join(porter, name), to: `/${name}` }))
  const made: Readonly<Record<string, Parameters<typeof dockerArchive>[1]>> = {
    pause: { names: [PAUSE], entrypoint: ['/pause'], files: [{ from: join(BIN, 'pause'), to: '/pause' }] },
    agnhost: {
      names: [`${E2E}/agnhost:2.66.1`, `${E2E}/agnhost:2.43`],
      entrypoint: ['/agnhost'],
      cmd: ['pause'],
      files: [
        agnhost,
        { ...agnhost, to: '/agnhost-2' },
        { from: join(BIN, 'coredns'), to: '/coredns' },
        ...certificates,
        ...['curl', 'wget', 'getent', 'nc', 'socat', 'dig', 'iperf', 'ip', 'ss', 'bash'].map(tool),
        sh,
        busybox,
      ],
    },
    regression: {
      names: [`${E2E}/regression-issue-74839:1.5`],
      entrypoint: ['/regression-issue-74839'],
      files: [{ from: join(BIN, 'regression-issue-74839'), to: '/regression-issue-74839' }],
    },
    dnstest: {
      names: [`${E2E}/glibc-dns-testing:2.1.1`],
      cmd: ['sh'],
      files: [...['dig', 'getent', 'bash'].map(tool), sh, busybox],
    },
    iptables: {
      names: ['registry.k8s.io/build-image/distroless-iptables:v0.9.9'],
      cmd: ['sh'],
      files: [...['conntrack', 'iptables', 'nft'].map(tool), busybox],
    },
    coredns: {
      names: ['registry.k8s.io/coredns/coredns:lab'],
      entrypoint: ['/coredns'],
      files: [{ from: join(BIN, 'coredns'), to: '/coredns' }],
    },
    busybox: { names: [`${E2E}/busybox:1.37.0-2`], cmd: ['sh'], files: [busybox] },
    nginx: {
      names: [`${E2E}/nginx:1.27.0-2`, `${E2E}/nginx:1.28.0-2`],
      entrypoint: ['/usr/bin/busybox'],
      cmd: ['httpd', '-f', '-p', '80'],
      files: [busybox],
    },
  }
  for (const [name, image] of Object.entries(made))
    if (!existsSync(join(IMAGES, `${name}.tar`))) await dockerArchive(join(IMAGES, `${name}.tar`), image)
}

async function kubernetes(name: string): Promise<void> {
  await timed(name, BIN, () =>
    go(['build', '-ldflags', flags(), '-o', join(BIN, name), `k8s.io/kubernetes/cmd/${name}`]),
  )
}

function flags(): string {
  const version = 'k8s.io/component-base/version'
  const [major, minor] = KUBERNETES.slice(1).split('.')
  const said = { gitVersion: KUBERNETES, gitMajor: major, gitMinor: minor, gitTreeState: 'clean', gitCommit: 'lab' }
  return ['-s -w', ...Object.entries(said).map(([name, value]) => `-X ${version}.${name}=${value}`)].join(' ')
}

async function go(args: readonly string[]): Promise<void> {
  await execa('go', args, { cwd: SOURCE, env: ENV, stdout: 'ignore', stderr: 'inherit' })
}

async function installed(to: string, args: readonly string[], what: string): Promise<void> {
  await execa('go', ['install', ...args, what], {
    cwd: dirname(SOURCE),
    env: { ...ENV, GOBIN: to },
    stdout: 'ignore',
    stderr: 'inherit',
  })
}

async function timed(name: string, dir: string, work: () => Promise<void>): Promise<void> {
  if (existsSync(join(dir, name))) return
  const started = performance.now()
  process.stderr.write(`kubernetes: building ${name}\n`)
  await work()
  process.stderr.write(`kubernetes: built ${name} in ${Math.round((performance.now() - started) / 1000)} s\n`)
}

try {
  await main()
} catch (cause) {
  process.stderr.write(`kubernetes: ${(cause as Error).message}\n`)
  process.exitCode = 1
}
