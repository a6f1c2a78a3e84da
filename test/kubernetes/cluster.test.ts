// lane: kubernetes
// Tests conf/chart, scripts/image.ts, agent/store/kube and the plugins, in a real Kubernetes of three nodes.
import assert from 'node:assert/strict'
import { globSync } from 'node:fs'
import { join } from 'node:path'
import { type Cluster, type Machine, missing, up } from '../../tools/k8s/lab.ts'
import { until } from '../support/harness.ts'
import { patient } from '../support/patience.ts'
import { skip } from '../support/skip.ts'

const ROOT = join(import.meta.dir, '../..')
const NODES = ['n1', 'n2', 'n3'] as const
const IMAGE = 'registry.k8s.io/e2e-test-images/agnhost:2.66.1'
/** Of a packet within VXLAN over IPv6: 1430 bytes, with 28 or 48 of headers. */
const FULL = { v4: 1402, v6: 1382 }

let cluster: Cluster
before(async function () {
  this.timeout(300_000)
  const why = missing()
  if (why !== undefined) skip(this as unknown as Mocha.Context, why)
  cluster = await up({
    nodes: NODES,
    isDual: true,
    images: globSync('out/plumb-*-linux-*.oci.tar', { cwd: ROOT }).map((one) => join(ROOT, one)),
  })
})
after(async function () {
  this.timeout(120_000)
  await cluster?.down()
})

const kubectl = (...args: string[]) => cluster.kubectl(args)
const helm = async (...args: string[]) => {
  const { status, stdout, stderr } = await cluster.control.exec(['helm', ...args], {
    env: { KUBECONFIG: cluster.kubeconfig },
  })
  assert.equal(status, 0, `helm ${args.join(' ')}: ${stderr}`)
  return stdout
}
const apply = (...objects: object[]) =>
  cluster.kubectl(['apply', '-f', '-'], objects.map((one) => JSON.stringify(one)).join('\n---\n'))
const node = (name: string) => cluster.nodes.find((one) => one.name === name) as Machine
const inPod = (name: string, ...argv: string[]) => kubectl('exec', name, '--', ...argv)

function pod(name: string, on: string, more: object = {}, labels: Readonly<Record<string, string>> = {}): object {
  const container = { name: 'c', image: IMAGE, imagePullPolicy: 'Never', args: ['netexec'], ...more }
  return {
    apiVersion: 'v1',
    kind: 'Pod',
    metadata: { name, labels: { app: 'test', ...labels } },
    spec: {
      nodeName: on,
      terminationGracePeriodSeconds: 0,
      tolerations: [{ operator: 'Exists' }],
      containers: [container],
    },
  }
}

async function addresses(name: string): Promise<{ v4: string; v6: string }> {
  const all = (await kubectl('get', 'pod', name, '-o', 'jsonpath={.status.podIPs[*].ip}')).split(' ')
  return { v4: all.find((one) => !one.includes(':')) ?? '', v6: all.find((one) => one.includes(':')) ?? '' }
}

const url = (address: string, port: number, path: string) =>
  `http://${address.includes(':') ? `[${address}]` : address}:${port}/${path}`
const get = (from: string, address: string, port: number, path: string) =>
  inPod(from, 'curl', '-s', '-g', '-m', '5', url(address, port, path))

const flowing: (() => void)[] = []
afterEach(() => {
  for (const end of flowing.splice(0)) end()
})

/**
 * Asks for something every 50 ms until it is told to end: how often it was asked, and how often there was no answer.
 */
function flow(from: Machine, address: string, port: number): { end(): Promise<{ asked: number; lost: number }> } {
  let [asked, lost, isOver] = [0, 0, false]
  flowing.push(() => {
    isOver = true
  })
  const going = (async () => {
    while (!isOver) {
      asked++
      const { status } = await from.exec([
        'curl',
        '-s',
        '-g',
        '-m',
        '2',
        '-o',
        '/dev/null',
        url(address, port, 'hostname'),
      ])
      if (status !== 0) lost++
      await Bun.sleep(50)
    }
  })()
  return {
    async end() {
      isOver = true
      await going
      return { asked, lost }
    },
  }
}

/** Waits until an agent says so of its node. */
async function ready(name: string, wanted: RegExp): Promise<void> {
  let said = ''
  await until(async () => {
    said = (await node(name).exec(['curl', '-s', '-m', '2', 'http://127.0.0.1:9469/readyz'])).stdout
    return wanted.test(said.trim())
  }, 60_000).catch(() => assert.fail(`${name} says ${said}`))
}

/** What plumb has on a node for pods: host ends of their links, addresses that are held, elements of nft. */
async function held(machine: Machine): Promise<{ veths: number; addresses: number; attachments: number }> {
  const count = async (script: string) => Number((await machine.exec(['sh', '-c', script])).stdout.trim())
  return {
    veths: await count('ip -o link show master cni0 2>/dev/null | wc -l'),
    addresses: await count("ls /var/lib/cni/networks/*/ 2>/dev/null | grep -c '^[0-9a-f]*[.:]' || true"),
    attachments: await count('ls /run/cni/plumb/attachments 2>/dev/null | grep -v lock | wc -l'),
  }
}

describe('Kubernetes on plumb', function () {
  this.timeout(300_000)

  it('helm install makes every node Ready, with the agent’s condition and the pod CIDRs that Kubernetes gave', async () => {
    await helm(
      'install',
      'plumb',
      join(ROOT, 'conf/chart'),
      '-n',
      'plumb',
      '--create-namespace',
      '--set',
      'network.ipv6=fd44::/48,metrics.enabled=true',
    )
    await kubectl('wait', '--for=condition=Ready', 'node', '--all', '--timeout=120s')
    await kubectl('-n', 'plumb', 'rollout', 'status', 'ds/plumb-agent', '--timeout=120s')
    for (const name of NODES) {
      const said = JSON.parse(await kubectl('get', 'node', name, '-o', 'json')) as {
        spec: { podCIDRs: string[] }
        metadata: { annotations: Record<string, string> }
        status: { conditions: { type: string; status: string; reason: string }[] }
      }
      assert.equal(said.metadata.annotations['flannel.alpha.coreos.com/kube-subnet-manager'], 'true')
      assert.equal(said.status.conditions.find(({ type }) => type === 'NetworkUnavailable')?.reason, 'FlannelIsUp')
      const { stdout } = await node(name).exec(['cat', '/run/flannel/subnet.env'])
      assert.ok(stdout.includes(`FLANNEL_SUBNET=${said.spec.podCIDRs[0]?.replace(/0\/24$/, '1/24')}`), stdout)
    }
    // As the README says.
    await until(
      async () =>
        /^ *peers +2$/m.test(
          await kubectl('-n', 'plumb', 'exec', 'ds/plumb-agent', '--', 'plumb', 'status').catch((cause) => `${cause}`),
        ),
      30_000,
    )
  })

  it('pods of all nodes reach each other in both families, at full size; kubectl exec and logs work', async () => {
    await apply(...NODES.map((name) => pod(`p-${name}`, name)))
    await kubectl('wait', '--for=condition=Ready', 'pod', '-l', 'app=test', '--timeout=120s')
    const all = await Promise.all(NODES.map((name) => addresses(`p-${name}`)))
    for (const from of NODES)
      for (const [i, to] of all.entries()) {
        for (const family of ['v4', 'v6'] as const) {
          assert.match(
            await get(`p-${from}`, to[family], 8080, 'hostname'),
            new RegExp(`p-${NODES[i]}`),
            `${from} to ${to[family]}`,
          )
          const { status, stdout } = await node(from).exec([
            'ping',
            '-n',
            '-q',
            '-c',
            '1',
            '-w',
            '3',
            '-M',
            'do',
            '-s',
            `${FULL[family]}`,
            to[family],
          ])
          assert.equal(status, 0, `${from} to ${to[family]}: ${stdout}`)
        }
      }
    // The source address stays the pod's own.
    assert.match(
      await get('p-n1', (all[1] as { v4: string }).v4, 8080, 'clientip'),
      new RegExp(`^${(all[0] as { v4: string }).v4}:`),
    )
    assert.match(await kubectl('logs', 'p-n1'), /./)
  })

  it('host ports, ClusterIP, NodePort and names', async () => {
    await cluster.kubectl(['apply', '-f', join(ROOT, 'tools/k8s/dns.yaml')])
    await apply(pod('port-n1', 'n1', { ports: [{ containerPort: 8080, hostPort: 8888 }] }), {
      apiVersion: 'v1',
      kind: 'Service',
      metadata: { name: 'web' },
      spec: {
        type: 'NodePort',
        ipFamilyPolicy: 'PreferDualStack',
        selector: { app: 'test' },
        ports: [{ port: 80, targetPort: 8080, nodePort: 30080 }],
      },
    })
    await kubectl('wait', '--for=condition=Ready', 'pod', 'port-n1', '--timeout=120s')
    await until(
      async () =>
        (await node('n2').exec(['curl', '-s', '-m', '2', 'http://10.78.0.1:8888/hostname'])).stdout === 'port-n1',
      20_000,
    )
    await until(
      async () =>
        (await node('n2').exec(['curl', '-s', '-g', '-m', '2', 'http://[fd78::1]:8888/hostname'])).stdout === 'port-n1',
      20_000,
    )
    await until(
      async () =>
        (await cluster.control.exec(['curl', '-s', '-m', '2', 'http://10.78.0.3:30080/hostname'])).status === 0,
      20_000,
    )
    await kubectl('-n', 'kube-system', 'rollout', 'status', 'deploy/coredns', '--timeout=120s')
    await until(
      async () =>
        /p-n|port-n/.test(
          await inPod('p-n3', 'curl', '-s', '-m', '3', 'http://web.default.svc.cluster.local/hostname').catch(() => ''),
        ),
      60_000,
    )
    await kubectl('delete', 'pod', 'port-n1', '--wait')
    // The API may forget a pod before the runtime has taken it down.
    await until(
      async () => (await node('n2').exec(['curl', '-s', '-m', '2', 'http://10.78.0.1:8888/hostname'])).status !== 0,
      20_000,
    )
  })

  it('an API server that is stopped for 60 s, and an agent that is killed meanwhile: no packet is lost', async () => {
    const { v4 } = await addresses('p-n2')
    const going = flow(node('n1'), v4, 8080)
    await cluster.stopApi()
    await Bun.sleep(20_000)
    const { stdout: containers } = await node('n1').exec(['sh', '-c', "pgrep -f 'plumb agent --config' | head -1"])
    await node('n1').exec(['kill', '-9', containers.trim()])
    await ready('n1', /the network is as it was known/)
    await Bun.sleep(20_000)
    await cluster.startApi()
    await ready('n1', /^ready$/)
    const { asked, lost } = await going.end()
    assert.ok(asked > 300 && lost === 0, `${lost} of ${asked} lost`)
  })

  it('a rolling update of the agents under flows in both directions loses nothing', async () => {
    const [one, two] = await Promise.all([addresses('p-n1'), addresses('p-n2')])
    const flows = [flow(node('n2'), one.v4, 8080), flow(node('n1'), two.v6, 8080)]
    await kubectl('-n', 'plumb', 'rollout', 'restart', 'ds/plumb-agent')
    await kubectl('-n', 'plumb', 'rollout', 'status', 'ds/plumb-agent', '--timeout=200s')
    for (const { asked, lost } of await Promise.all(flows.map((one) => one.end())))
      assert.ok(asked > 50 && lost === 0, `${lost} of ${asked} lost`)
  })

  it('60 pods are made and deleted twice, and nothing of them is left', async () => {
    const before = await Promise.all(cluster.nodes.map(held))
    for (let round = 0; round < 2; round++) {
      await apply(
        ...Array.from({ length: 60 }, (_, i) =>
          pod(`many-${i}`, NODES[i % 3] as string, { args: ['pause'] }, { app: 'many' }),
        ),
      )
      await kubectl('wait', '--for=condition=Ready', 'pod', '-l', 'app=many', '--timeout=250s')
      const many = (await kubectl('get', 'pod', '-l', 'app=many', '-o', 'jsonpath={.items[*].status.podIP}')).split(' ')
      assert.equal(new Set(many).size, 60)
      await kubectl('delete', 'pod', '-l', 'app=many', '--wait', '--timeout=200s')
    }
    await until(async () => Bun.deepEquals(await Promise.all(cluster.nodes.map(held)), before), 60_000).catch(
      async () => assert.deepEqual(await Promise.all(cluster.nodes.map(held)), before),
    )
  }).timeout(900_000)

  it('a node that restarts serves its pods again, and other pods keep talking meanwhile', async () => {
    const going = flow(node('n1'), (await addresses('p-n3')).v4, 8080)
    await cluster.reboot('n2')
    await ready('n2', /^ready$/)
    await until(
      async () => /p-n2/.test(await get('p-n1', (await addresses('p-n2')).v4, 8080, 'hostname').catch(() => '')),
      120_000,
    )
    assert.match(await get('p-n3', (await addresses('p-n2')).v6, 8080, 'hostname'), /p-n2/)
    const { asked, lost } = await going.end()
    assert.ok(asked > 50 && lost === 0, `${lost} of ${asked} lost`)
    const all = JSON.parse(await kubectl('get', 'pod', '-A', '--field-selector', 'spec.nodeName=n2', '-o', 'json')) as {
      items: { metadata: { name: string }; spec: { hostNetwork?: boolean } }[]
    }
    const own = all.items.filter(({ spec }) => !spec.hostNetwork).map(({ metadata }) => metadata.name)
    await until(
      async () =>
        Bun.deepEquals(await held(node('n2')), {
          veths: own.length,
          addresses: 2 * own.length,
          attachments: own.length,
        }),
      60_000,
    ).catch(async () => assert.deepEqual([own, await held(node('n2'))], []))
  })

  it('a Node that is deleted and made again gets another pod CIDR, and its new pods are reached', async () => {
    const before = await kubectl('get', 'node', 'n3', '-o', 'jsonpath={.spec.podCIDR}')
    const { metadata } = JSON.parse(await kubectl('get', 'node', 'n3', '-o', 'json')) as {
      metadata: { labels: object }
    }
    await kubectl('delete', 'pod', 'p-n3', '--wait')
    await kubectl('delete', 'node', 'n3')
    await ready('n3', /There is no Node "n3" in the cluster/)
    // The data path stays.
    assert.equal((await node('n3').exec(['test', '-e', '/run/flannel/subnet.env'])).status, 0)
    await apply({ apiVersion: 'v1', kind: 'Node', metadata: { name: 'n3', labels: metadata.labels } })
    await until(async () => (await kubectl('get', 'node', 'n3', '-o', 'jsonpath={.spec.podCIDR}')) !== '', 60_000)
    const after = await kubectl('get', 'node', 'n3', '-o', 'jsonpath={.spec.podCIDR}')
    assert.notEqual(after, before)
    await kubectl('wait', '--for=condition=Ready', 'node', 'n3', '--timeout=200s')
    await ready('n3', /^ready$/)
    await apply(pod('again-n3', 'n3'))
    await kubectl('wait', '--for=condition=Ready', 'pod', 'again-n3', '--timeout=120s')
    const { v4, v6 } = await addresses('again-n3')
    assert.ok(v4.startsWith(after.replace(/0\/24$/, '')), `${v4} of ${after}`)
    for (const address of [v4, v6]) assert.match(await get('p-n1', address, 8080, 'hostname'), /again-n3/)
    await kubectl('delete', 'pod', 'again-n3', '--wait')
  }).timeout(600_000)

  it('the metrics Service leads to every agent', async () => {
    await until(
      async () =>
        (
          await kubectl(
            '-n',
            'plumb',
            'get',
            'endpointslices',
            '-l',
            'kubernetes.io/service-name=plumb-metrics',
            '-o',
            'jsonpath={.items[*].endpoints[*].addresses[0]}',
          )
        ).split(' ').length >= 2,
      30_000,
    )
    const { stdout } = await cluster.control.exec(['curl', '-s', '-m', '3', 'http://10.78.0.1:9469/metrics'])
    assert.match(stdout, /^plumb_/m)
  })

  it('helm uninstall says at once which pods live on which node, fails, and leaves nothing in the cluster; without pods it leaves nothing of plumb on the nodes', async () => {
    await kubectl('delete', 'deploy', '-n', 'kube-system', 'coredns', '--ignore-not-found')
    const objects = async () =>
      (
        await kubectl(
          'get',
          'all,configmap,serviceaccount,role,rolebinding,clusterrole,clusterrolebinding',
          '-n',
          'plumb',
          '-o',
          'name',
        )
      )
        .split('\n')
        .filter((one) => one.includes('plumb'))
    const begun = performance.now()
    const refused = await cluster.control.exec(['helm', 'uninstall', 'plumb', '-n', 'plumb', '--timeout', '120s'], {
      env: { KUBECONFIG: cluster.kubeconfig },
    })
    assert.notEqual(refused.status, 0)
    assert.ok(performance.now() - begun < patient(110_000), `${performance.now() - begun} ms`)
    const said = refused.stdout + refused.stderr
    assert.match(said, /n1: .*Cannot uninstall: \d+ of the pods that plumb attached live[^;]*default\/p-n1/)
    assert.doesNotMatch(said, /\\n/)
    await until(async () => (await objects()).length === 0, 60_000).catch(async () =>
      assert.deepEqual(await objects(), []),
    )
    // The pods still talk while nothing was removed.
    assert.match(await get('p-n1', (await addresses('p-n2')).v4, 8080, 'hostname'), /p-n2/)
    await kubectl('delete', 'pod', '-l', 'app=test', '--wait', '--timeout=100s')
    // The namespace is there, and nothing of the failed hook.
    await helm('install', 'plumb', join(ROOT, 'conf/chart'), '-n', 'plumb', '--set', 'network.ipv6=fd44::/48')
    await kubectl('-n', 'plumb', 'rollout', 'status', 'ds/plumb-agent', '--timeout=120s')
    await kubectl('wait', '--for=condition=Ready', 'node', '--all', '--timeout=120s')
    await helm('uninstall', 'plumb', '-n', 'plumb', '--timeout', '200s')
    for (const name of NODES) await isClean(name)
    assert.deepEqual(await objects(), [])
  }).timeout(900_000)
})

/** Nothing of plumb is on a node, nor in the Node's annotations. */
async function isClean(name: string): Promise<void> {
  const left = await node(name).exec([
    'sh',
    '-c',
    "ip -o link | grep -E 'flannel|cni0'; nft list tables | grep plumb; ip route show proto 112; ls -A /etc/cni/net.d /opt/cni/bin /run/flannel /run/cni/plumb 2>/dev/null | grep -v ':$' | grep .",
  ])
  assert.equal(left.stdout, '', name)
  const { annotations } = (
    JSON.parse(await kubectl('get', 'node', name, '-o', 'json')) as { metadata: { annotations: object } }
  ).metadata
  assert.deepEqual(
    Object.keys(annotations).filter((one) => one.startsWith('flannel.')),
    [],
  )
}
