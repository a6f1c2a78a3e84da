// Tests plugins and agent/store/kube with upstream's own end-to-end tests of the network, in a real Kubernetes.
import assert from 'node:assert/strict'
import { existsSync, globSync, mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { type Cluster, LAB, missing, up } from '../../tools/k8s/lab.ts'
import { skip } from '../support/skip.ts'

const ROOT = join(import.meta.dir, '../..')
const [E2E, GINKGO] = [join(LAB, 'bin/e2e.test'), join(LAB, 'bin/ginkgo')]
/** What every cluster has to pass: no optional features, and nothing that changes the cluster for others. PLUMB_E2E names other tests, as a pattern. */
const GIVEN = process.env['PLUMB_E2E']
const FOCUS = GIVEN ?? '\\[sig-network\\]'
const SKIP = '\\[Feature|\\[Slow\\]|\\[Serial\\]|\\[Disruptive\\]|\\[Flaky\\]'
/** Tests that ran with Kubernetes 1.37.2: the others of this focus are for other providers. */
const LEAST = 116
const NODES = ['n1', 'n2']

let cluster: Cluster
before(async function () {
  this.timeout(300_000)
  const why = missing() ?? (existsSync(E2E) && existsSync(GINKGO) ? undefined : `no e2e.test below ${LAB}: node_modules/.bin/bun tools/k8s/build.ts e2e builds it with Go`)
  if (why !== undefined) skip(this as unknown as Mocha.Context, why)
  cluster = await up({ nodes: NODES, images: globSync('out/plumb-*-linux-*.oci.tar', { cwd: ROOT }).map((one) => join(ROOT, one)) })
})
after(async function () {
  this.timeout(120_000)
  await cluster?.down()
})

interface Case {
  readonly name: string
  readonly status: string
  /** Why it failed. */
  readonly message: string
}

/** The cases of a report in JUnit's format that ran, and how each ended. */
function casesOf(report: string): Case[] {
  const cases = [...report.matchAll(/<testcase name="([^"]*)"[^>]* status="(\w+)"[^>]*>(?:\s*<failure message="([^"]*)")?/g)]
  return cases.flatMap(([, name = '', status = '', message = '']) => (status === 'skipped' || !name.startsWith('[It]') ? [] : [{ name: name.replace('[It] ', '').replaceAll('&#39;', "'"), status, message: message.slice(0, 1500) }]))
}

describe('upstream end-to-end tests', function () {
  this.timeout(3_600_000)

  it('[sig-network] passes', async () => {
    const { control, kubeconfig, kubectl } = cluster
    const helm = await control.exec(['helm', 'install', 'plumb', join(ROOT, 'conf/chart'), '-n', 'plumb', '--create-namespace'], { env: { KUBECONFIG: kubeconfig } })
    assert.equal(helm.status, 0, helm.stderr)
    await kubectl(['apply', '-f', join(ROOT, 'tools/k8s/dns.yaml')])
    await kubectl(['wait', '--for=condition=Ready', 'node', '--all', '--timeout=120s'])
    await kubectl(['-n', 'kube-system', 'rollout', 'status', 'deploy/coredns', '--timeout=120s'])
    // The cache is the folder that every machine of the lab sees.
    const reports = mkdtempSync(join(LAB, 'report-'))
    try {
      const own = [
        `--kubeconfig=${kubeconfig}`,
        '--provider=skeleton',
        `--num-nodes=${NODES.length}`,
        `--kubectl-path=${join(LAB, 'bin/kubectl')}`,
        '--node-os-distro=debian',
        '--disable-log-dump',
        `--report-dir=${reports}`,
        '--dns-domain=cluster.local',
      ]
      const { status, stdout, stderr } = await control.exec([GINKGO, '--procs=6', '--timeout=50m', '--no-color', '--succinct', '--silence-skips', `--focus=${FOCUS}`, `--skip=${SKIP}`, E2E, '--', ...own])
      const [file] = globSync('junit*.xml', { cwd: reports })
      assert.ok(file, `${stdout.slice(-3000)}${stderr.slice(-3000)}`)
      const cases = casesOf(readFileSync(join(reports, file), 'utf8'))
      const failed = cases.filter((one) => one.status !== 'passed')
      process.stderr.write(`e2e: ${cases.length - failed.length} of ${cases.length} passed\n`)
      assert.deepEqual([status, failed.map(({ name, message }) => `${name}: ${message}`)], [0, []])
      assert.ok(cases.length >= (GIVEN === undefined ? LEAST : 1), `${cases.length} ran`)
    } finally {
      rmSync(reports, { recursive: true })
    }
  })
})
