// Upstream's end-to-end tests of Kubernetes on a cluster of the lab.

import assert from 'node:assert/strict'
import { existsSync, globSync, mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { type Cluster, LAB, missing, up } from '../../tools/k8s/lab.ts'

const ROOT = join(import.meta.dir, '../..')
const [E2E, GINKGO] = [join(LAB, 'bin/e2e.test'), join(LAB, 'bin/ginkgo')]

/** Which of upstream's tests run. Both patterns are of a test's full name. */
export interface Choice {
  readonly focus: string
  readonly skip: string
  /** How many tests run side by side. */
  readonly procs: number
  /** How many tests this choice has at least: a pattern that matches nothing has to fail. */
  readonly least: number
}

/** PLUMB_PODS=routed runs upstream's tests on routed pods. Without it pods are as the chart has them. */
const PODS = process.env['PLUMB_PODS']

/** Why upstream's tests cannot run here; undefined when they can. */
export function missingUpstream(): string | undefined {
  return (
    missing() ??
    (existsSync(E2E) && existsSync(GINKGO)
      ? undefined
      : `no e2e.test below ${LAB}: node_modules/.bin/bun tools/k8s/build.ts e2e builds it with Go`)
  )
}

/** What the cluster of upstream's tests is to be. */
export interface WithPlumb {
  /** Names of the nodes. Two unless given. */
  readonly nodes?: readonly string[]
  /** Values of the chart, as `key=value`. */
  readonly values?: readonly string[]
  /** With false nothing but plumb serves Services. True unless given. */
  readonly hasKubeProxy?: boolean
  /** Both families. */
  readonly isDual?: boolean
}

/**
 * Starts a cluster with a name server and the chart of plumb. Throws Error with pods and logs when that does not become
 * ready.
 */
export async function upWithPlumb({
  nodes = ['n1', 'n2'],
  values = [],
  hasKubeProxy = true,
  isDual = false,
}: WithPlumb = {}): Promise<Cluster> {
  const cluster = await up({
    nodes,
    hasKubeProxy,
    isDual,
    images: globSync('out/plumb-*-linux-*.oci.tar', { cwd: ROOT }).map((one) => join(ROOT, one)),
  })
  try {
    const { control, kubeconfig, kubectl } = cluster
    const helm = await control.exec(
      [
        'helm',
        'install',
        'plumb',
        join(ROOT, 'conf/chart'),
        '-n',
        'plumb',
        '--create-namespace',
        ...[...(PODS === undefined ? [] : [`network.pods=${PODS}`]), ...values].flatMap((value) => ['--set', value]),
      ],
      { env: { KUBECONFIG: kubeconfig } },
    )
    assert.equal(helm.status, 0, helm.stderr)
    await kubectl(['apply', '-f', join(ROOT, 'tools/k8s/dns.yaml')])
    await kubectl(['wait', '--for=condition=Ready', 'node', '--all', '--timeout=120s'])
    await kubectl(['-n', 'plumb', 'rollout', 'status', 'ds/plumb-agent', '--timeout=120s'])
    await kubectl(['-n', 'kube-system', 'rollout', 'status', 'deploy/coredns', '--timeout=120s'])
    return cluster
  } catch (cause) {
    const pods = await cluster.kubectl(['get', 'pods', '-A', '-o', 'wide']).catch(() => '')
    const agents = await cluster
      .kubectl(['-n', 'plumb', 'logs', 'ds/plumb-agent', '--all-containers', '--tail=40'])
      .catch(() => '')
    await cluster.down()
    throw new Error(`The cluster is not ready: ${(cause as Error).message}\n${pods}${agents}`, { cause })
  }
}

interface Case {
  readonly name: string
  readonly status: string
  /** Why it failed. */
  readonly message: string
}

/** The cases of a report in JUnit's format that ran, and how each ended. */
function casesOf(report: string): Case[] {
  const cases = [...report.matchAll(/<testcase name="([^"]*)"[^>]* status="(\w+)"[^>]*>(?:\s*<failure[^>]*>([^<]*))?/g)]
  return cases.flatMap(([, name = '', status = '', message = '']) =>
    status === 'skipped' || !name.startsWith('[It]')
      ? []
      : [{ name: name.replace('[It] ', '').replaceAll('&#39;', "'"), status, message: message.slice(0, 1500) }],
  )
}

/** The cases that ended themselves with a reason: the cluster lacks what they need. */
function skipsOf(report: string): string[] {
  return [
    ...report.matchAll(
      /<testcase name="\[It\] ([^"]*)"[^>]* status="skipped"[^>]*>\s*<skipped message="skipped - ([^"]*)"/g,
    ),
  ].map(([, name, reason]) => `${name}: ${reason}`)
}

/**
 * Runs upstream's tests of this choice. Prints how many passed, and why some did not run. Throws AssertionError with
 * the name and the message of each that did not.
 */
export async function passesUpstream(
  { control, nodes, kubeconfig }: Cluster,
  { focus, skip, procs, least }: Choice,
): Promise<void> {
  // The cache is the folder that every machine of the lab sees.
  const reports = mkdtempSync(join(LAB, 'report-'))
  try {
    const own = [
      `--kubeconfig=${kubeconfig}`,
      '--provider=skeleton',
      `--num-nodes=${nodes.length}`,
      `--kubectl-path=${join(LAB, 'bin/kubectl')}`,
      '--node-os-distro=debian',
      '--disable-log-dump',
      `--report-dir=${reports}`,
      '--dns-domain=cluster.local',
    ]
    const { status, stdout, stderr } = await control.exec([
      GINKGO,
      `--procs=${procs}`,
      '--timeout=50m',
      '--no-color',
      '--succinct',
      '--silence-skips',
      `--focus=${focus}`,
      `--skip=${skip}`,
      E2E,
      '--',
      ...own,
    ])
    const [file] = globSync('junit*.xml', { cwd: reports })
    assert.ok(file, `${stdout.slice(-3000)}${stderr.slice(-3000)}`)
    const report = readFileSync(join(reports, file), 'utf8')
    const cases = casesOf(report)
    const failed = cases.filter((one) => one.status !== 'passed')
    process.stderr.write(
      `e2e: ${cases.length - failed.length} of ${cases.length} passed\n${skipsOf(report)
        .map((one) => `e2e: not run: ${one}\n`)
        .join('')}`,
    )
    assert.deepEqual([status, failed.map(({ name, message }) => `${name}: ${message}`)], [0, []])
    assert.ok(cases.length >= least, `${cases.length} ran, want at least ${least}`)
  } finally {
    rmSync(reports, { recursive: true })
  }
}
