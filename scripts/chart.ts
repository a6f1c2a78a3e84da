import { cpSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { gzipSync } from 'bun'
import { execa } from 'execa'
import { version } from '../package.json'
import { LAB } from '../tools/k8s/lab.ts'

// Renders conf/kubernetes.yaml from conf/chart, and packs the chart for `helm install`. Both need helm, which
// tools/k8s/build.ts makes.

const ROOT = join(import.meta.dir, '..')
const CHART = join(ROOT, 'conf/chart')
const HELM = join(LAB, 'bin/helm')
const HEAD = `# The network of a Kubernetes cluster: kubectl apply -f conf/kubernetes.yaml
# Change first: "Network" (and "IPv6Network") in net-conf.json to the pod CIDR of your cluster, and the image to where your nodes find it.
# Kubernetes before 1.30 has no ValidatingAdmissionPolicy: remove it and its binding (docs/security.md).
# Made by \`npm run chart\` from conf/chart: change it there, or use helm.
`

/** Returns the path of helm, or undefined when it was not built. */
export function helm(): string | undefined {
  return existsSync(HELM) ? HELM : undefined
}

/** Returns the plain manifest, as the chart gives it. Throws Error with helm's words. */
export async function manifest(program: string): Promise<string> {
  const { stdout } = await execa(program, [
    'template',
    'plumb',
    CHART,
    '--namespace',
    'plumb',
    '--no-hooks',
    '--set',
    'createNamespace=true',
    // Helm takes what it was built for otherwise. It decides about the ValidatingAdmissionPolicy.
    '--kube-version',
    '1.30.0',
  ])
  return (
    HEAD +
    stdout
      .replace(/^---\n/, '')
      .replace(/^# Source: .*\n/gm, '')
      .trimEnd() +
    '\n'
  )
}

// `helm package` gives each file the time of the run. tar gives the same bytes each time.
async function pack(to: string): Promise<void> {
  const draft = mkdtempSync(join(tmpdir(), 'plumb-chart-'))
  try {
    cpSync(CHART, join(draft, 'plumb'), { recursive: true })
    const { stdout } = await execa(
      'tar',
      [
        '--sort=name',
        '--mtime=@0',
        '--owner=0',
        '--group=0',
        '--numeric-owner',
        '--format=ustar',
        '--mode=u+rwX,go+rX,go-w',
        '-c',
        '-C',
        draft,
        'plumb',
      ],
      { encoding: 'buffer' },
    )
    writeFileSync(to, gzipSync(new Uint8Array(stdout), { level: 9 }))
  } finally {
    rmSync(draft, { recursive: true, force: true })
  }
}

if (import.meta.main) {
  const program = helm()
  if (program === undefined) throw new Error(`Cannot render the chart: there is no ${HELM}`)
  const [path, text] = [join(ROOT, 'conf/kubernetes.yaml'), await manifest(program)]
  if (!existsSync(path) || readFileSync(path, 'utf8') !== text) {
    writeFileSync(path, text)
    process.stderr.write('chart: wrote conf/kubernetes.yaml\n')
  }
  mkdirSync(join(ROOT, 'out'), { recursive: true })
  const archive = `out/plumb-${version}.tgz`
  await pack(join(ROOT, archive))
  process.stdout.write(
    `${archive}: the chart, sha256:${new Bun.CryptoHasher('sha256').update(readFileSync(join(ROOT, archive))).digest('hex')}\n`,
  )
}
