// lane: kubernetes
// Tests agent/store/kube beside flanneld in kube mode, in a real Kubernetes: a node changes to plumb and back while its
// pod runs.
import assert from 'node:assert/strict'
import { existsSync, globSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { type Cluster, type Machine, missing, up } from '../../tools/k8s/lab.ts'
import { until } from '../support/harness.ts'
import { skip } from '../support/skip.ts'

const ROOT = join(import.meta.dir, '../..')
const FLANNELD = join(process.env['PLUMB_PEERS'] ?? '/var/cache/plumb/peers', 'flannel-0.28.9/flannel')
const IMAGE = 'registry.k8s.io/e2e-test-images/agnhost:2.66.1'
// As docs/migrate-from-flannel.md says: nodes of the label have plumb, and pods a bridge.
const MANIFEST = readFileSync(join(ROOT, 'conf/kubernetes.yaml'), 'utf8')
  .replace('kubernetes.io/os: linux', 'cni: plumb')
  .replace(/^ +pods: "routed"\n/m, '')
const CONFLIST = {
  name: 'cbr0',
  cniVersion: '0.3.1',
  plugins: [
    { type: 'flannel', delegate: { hairpinMode: true, isDefaultGateway: true } },
    { type: 'portmap', capabilities: { portMappings: true } },
  ],
}

let cluster: Cluster
before(async function () {
  this.timeout(300_000)
  const why =
    missing() ??
    (existsSync(FLANNELD) ? undefined : `no ${FLANNELD}: node_modules/.bin/bun scripts/peers.ts flanneld builds it`)
  if (why !== undefined) skip(this as unknown as Mocha.Context, why)
  cluster = await up({
    nodes: ['n1', 'n2'],
    images: globSync('out/plumb-*-linux-*.oci.tar', { cwd: ROOT }).map((one) => join(ROOT, one)),
  })
})
after(async function () {
  this.timeout(120_000)
  await cluster?.down()
})
const endings: (() => void)[] = []
afterEach(() => {
  for (const end of endings.splice(0)) end()
})

const kubectl = (...args: string[]) => cluster.kubectl(args)
const addressOf = (name: string) => kubectl('get', 'pod', name, '-o', 'jsonpath={.status.podIP}')

function pod(name: string, on: string): string {
  const container = { name: 'c', image: IMAGE, imagePullPolicy: 'Never', args: ['netexec'] }
  return JSON.stringify({
    apiVersion: 'v1',
    kind: 'Pod',
    metadata: { name },
    spec: {
      nodeName: on,
      terminationGracePeriodSeconds: 0,
      tolerations: [{ operator: 'Exists' }],
      containers: [container],
    },
  })
}

function startFlanneld(node: Machine): void {
  node.start('flanneld', [
    'env',
    `NODE_NAME=${node.name}`,
    FLANNELD,
    '--kube-subnet-mgr',
    '--ip-masq',
    `--kubeconfig-file=${cluster.kubeconfig}`,
    '--iface=eth0',
  ])
}

/** Asks a pod every 50 ms while `work` goes on: how many requests had no answer. */
async function lostDuring(
  from: Machine,
  address: string,
  work: () => Promise<void>,
): Promise<{ asked: number; lost: number }> {
  let [asked, lost, isOver] = [0, 0, false]
  endings.push(() => {
    isOver = true
  })
  const going = (async () => {
    for (; !isOver; await Bun.sleep(50)) {
      asked++
      const ask = ['curl', '-s', '-m', '2', '-o', '/dev/null', `http://${address}:8080/hostname`]
      if ((await from.exec(ask)).status !== 0) lost++
    }
  })()
  await work()
  isOver = true
  await going
  return { asked, lost }
}

async function reachEachOther(): Promise<void> {
  for (const [from, to] of [
    ['n1', 'n2'],
    ['n2', 'n1'],
  ])
    assert.match(
      await kubectl(
        'exec',
        `p-${from}`,
        '--',
        'curl',
        '-s',
        '-m',
        '5',
        `http://${await addressOf(`p-${to}`)}:8080/clientip`,
      ),
      new RegExp(`^${await addressOf(`p-${from}`)}:`),
    )
}

describe('plumb beside flanneld in Kubernetes', function () {
  this.timeout(300_000)

  it('pods of a node with plumb and of a node with flanneld reach each other; the node with flanneld changes to plumb and back without a lost request', async () => {
    const [one, two] = cluster.nodes as [Machine, Machine]
    await two.exec(['sh', '-c', 'mkdir -p /etc/kube-flannel /run/flannel; cat >/etc/kube-flannel/net-conf.json'], {
      stdin: '{"Network":"10.244.0.0/16","Backend":{"Type":"vxlan"}}',
    })
    startFlanneld(two)
    await two.exec([join(ROOT, 'dist/plumb'), 'install'])
    await two.exec(['tee', '/etc/cni/net.d/10-flannel.conflist'], { stdin: JSON.stringify(CONFLIST) })
    await kubectl('label', 'node', 'n1', 'cni=plumb')
    await cluster.kubectl(['apply', '-f', '-'], MANIFEST)
    await kubectl('wait', '--for=condition=Ready', 'node', '--all', '--timeout=120s')
    for (const name of ['n1', 'n2']) await cluster.kubectl(['apply', '-f', '-'], pod(`p-${name}`, name))
    await kubectl('wait', '--for=condition=Ready', 'pod', '--all', '--timeout=120s')
    await reachEachOther()
    const target = await addressOf('p-n2')
    const there = await lostDuring(one, target, async () => {
      await two.stop('flanneld')
      await kubectl('label', 'node', 'n2', 'cni=plumb')
      await until(
        async () =>
          (await two.exec(['curl', '-s', '-m', '1', 'http://127.0.0.1:9469/readyz'])).stdout.trim() === 'ready',
        60_000,
      )
    })
    assert.ok(there.asked > 5 && there.lost === 0, `${there.lost} of ${there.asked} lost on the way to plumb`)
    await reachEachOther()
    const back = await lostDuring(one, target, async () => {
      await kubectl('label', 'node', 'n2', 'cni-')
      await until(
        async () => (await two.exec(['curl', '-s', '-m', '1', 'http://127.0.0.1:9469/healthz'])).status !== 0,
        60_000,
      )
      startFlanneld(two)
      await until(() => two.log('flanneld').split('Running backend').length > 2, 60_000)
      // The requests have to see what flanneld does at its start.
      await Bun.sleep(2000)
    })
    assert.ok(back.asked > 5 && back.lost === 0, `${back.lost} of ${back.asked} lost on the way back`)
    await reachEachOther()
  })
})
