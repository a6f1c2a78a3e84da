import { existsSync, mkdtempSync, renameSync, rmSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { execa } from 'execa'
import { install } from './packages.ts'
import { unpackSource } from './sources.ts'
import { unpack } from './unpack.ts'

const CACHE = process.env['PLUMB_KUBERNETES'] ?? '/var/cache/plumb/kubernetes'
/** Debian's last version with a kubelet that calls CNI plugins itself (`--network-plugin=cni`, gone in 1.24). */
const VERSION = '1.20.2'
const GO = '/usr/lib/go-1.19/bin'
const COMMANDS = ['kube-apiserver', 'kubelet']
/** The packages of Docker, and of the programs that Docker starts. */
const DOCKER = ['docker.io', 'containerd', 'runc', 'tini']

/**
 * `bin` is the folder of kube-apiserver and kubelet. `docker` is the folder into which Docker was unpacked. Undefined
 * when they were not made.
 */
export function kubernetes(): { readonly bin: string; readonly docker: string } | undefined {
  const [bin, docker] = [join(CACHE, VERSION), join(CACHE, 'docker')]
  return existsSync(join(bin, 'kubelet')) && existsSync(join(docker, 'usr/sbin/dockerd')) ? { bin, docker } : undefined
}

/** Unpacks Docker and builds Kubernetes outside the checkout, if they are missing. Throws Error when that fails. */
async function make(): Promise<void> {
  const [bin, docker] = [join(CACHE, VERSION), join(CACHE, 'docker')]
  if (!existsSync(docker)) {
    process.stderr.write(`kubernetes: unpacking ${DOCKER.join(', ')} in ${CACHE} (they are not installed)\n`)
    await unpack(docker, DOCKER)
  }
  if (existsSync(bin)) return
  const started = performance.now()
  process.stderr.write(
    `kubernetes: building Kubernetes ${VERSION} from Debian's source in ${CACHE}, which takes minutes\n`,
  )
  const draft = mkdtempSync(join(CACHE, '.draft-'))
  try {
    await build(draft)
    renameSync(draft, bin)
    process.stderr.write(`kubernetes: built it in ${Math.round((performance.now() - started) / 1000)} s\n`)
  } finally {
    rmSync(draft, { recursive: true, force: true })
  }
}

async function build(dir: string): Promise<void> {
  await install([
    { name: 'golang-1.19-go', shows: `${GO}/go`, why: 'to build Kubernetes' },
    { name: 'gcc', shows: 'gcc', why: 'for what of the kubelet is in C' },
    { name: 'libc6-dev', shows: '/usr/include/stdlib.h', why: 'the same' },
    { name: 'dpkg-dev', shows: 'dpkg-source', why: 'to unpack its source package' },
  ])
  const work = mkdtempSync(join(CACHE, '.work-'))
  try {
    const source = join(work, 'gopath/src/k8s.io/kubernetes')
    const version = await unpackSource('kubernetes', work, source)
    // Debian calls its version 1.20.5+really1.20.2.
    if (!version.endsWith(VERSION))
      throw new Error(`Cannot build Kubernetes ${VERSION}: this Debian has the source of ${version}`)
    const env = {
      PATH: `${GO}:${process.env['PATH']}`,
      GOTOOLCHAIN: 'local',
      GO111MODULE: 'off',
      GOFLAGS: '',
      GOPATH: join(work, 'gopath'),
      GOCACHE: join(work, 'cache'),
    }
    const go = (...argv: string[]) => execa('go', argv, { cwd: source, env })
    await generate(source, go, join(work, 'openapi-gen'), env)
    await go(
      'build',
      '-ldflags=-s -w',
      '-o',
      `${dir}/`,
      ...COMMANDS.map((command) => `k8s.io/kubernetes/cmd/${command}`),
    )
  } finally {
    rmSync(work, { recursive: true, force: true })
  }
}

// Debian's tarball lacks a generated file of upstream's release: the description of the API (hack/make-rules, openapi).
async function generate(
  source: string,
  go: (...argv: string[]) => Promise<unknown>,
  tool: string,
  env: Record<string, string>,
): Promise<void> {
  await go('build', '-o', tool, './vendor/k8s.io/kube-openapi/cmd/openapi-gen')
  const { stdout } = await execa(
    'grep',
    ['-rl', '--include=*.go', '-F', '+k8s:openapi-gen=', 'pkg', 'staging/src/k8s.io'],
    { cwd: source },
  )
  const dirs = [...new Set(stdout.split('\n').map((file) => dirname(file)))].filter(
    (dir) => !/_examples|sample|kube-openapi|testdata/.test(dir),
  )
  const names = dirs.map((dir) =>
    dir.startsWith('staging/src/')
      ? `k8s.io/kubernetes/vendor/${dir.slice('staging/src/'.length)}`
      : `k8s.io/kubernetes/${dir}`,
  )
  await execa(
    tool,
    [
      '--report-filename',
      `${tool}.report`,
      '-i',
      names.sort().join(','),
      '-p',
      'k8s.io/kubernetes/pkg/generated/openapi',
      '-O',
      'zz_generated.openapi',
      '-h',
      'vendor/k8s.io/code-generator/hack/boilerplate.go.txt',
      '--output-base',
      join(source, '../..'),
    ],
    { cwd: source, env },
  )
}

if (import.meta.main) {
  try {
    await make()
  } catch (cause) {
    const { stderr, message } = cause as Error & { stderr?: string }
    process.stderr.write(
      `kubernetes: ${message.split('\n', 1)[0]}\n${(stderr ?? '').split('\n').slice(-20).join('\n')}\n`,
    )
    process.exitCode = 1
  }
}
