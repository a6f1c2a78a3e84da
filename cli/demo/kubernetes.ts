import { type Cluster, type Machine, up } from '../../tools/k8s/lab.ts'
import { print } from '../output.ts'
import { expect, step } from './screen.ts'

/** The nodes of the cluster. */
export const CLUSTER_NODES = ['n1', 'n2', 'n3'] as const
const IMAGE = 'registry.k8s.io/e2e-test-images/agnhost:2.66.1'
const NETWORK = { Network: '10.244.0.0/16', EnableIPv6: true, IPv6Network: 'fd44::/48', Backend: { Type: 'vxlan' } }
const CONF = '/run/net-conf.json'
const [HOST_PORT, NODE_PORT] = [8888, 30080]
const WAIT_MS = 60_000

interface Pod {
  readonly name: string
  readonly addresses: readonly string[]
}

/**
 * Tells the story of a Kubernetes cluster: control plane, three nodes with kubelet and containerd, plumb on each, pods
 * that talk. Removes all of it. Throws StepError.
 */
export async function playKubernetes(): Promise<void> {
  print('plumb demo: a Kubernetes cluster on this machine, each node in namespaces of its own\n')
  let cluster: Cluster | undefined
  try {
    await step('Kubernetes: control plane, three nodes', async () => {
      cluster = await up({ nodes: CLUSTER_NODES, isDual: true })
      const { serverVersion } = JSON.parse(await cluster.kubectl(['version', '-o', 'json']))
      return `${serverVersion.gitVersion}, kubelet, containerd and kube-proxy on each node`
    })
    if (cluster) await playIn(cluster)
  } finally {
    await cluster?.down()
  }
}

async function playIn(cluster: Cluster): Promise<void> {
  const { nodes, kubectl, control } = cluster
  await step('kubectl get nodes', async () => `${await notReady(cluster)}: they have no network for pods`)
  await step('plumb agent --kube-subnet-mgr, on each', async () => {
    await Promise.all(nodes.map((node) => startAgent(node, cluster.kubeconfig)))
    await kubectl(['wait', '--for=condition=Ready', 'node', '--all', '--timeout=120s'])
    return 'every node is Ready; the plugins are in /opt/cni/bin'
  })
  await step(
    'the pod CIDRs of the nodes',
    async () => await kubectl(['get', 'nodes', '-o', 'jsonpath={.items[*].spec.podCIDR}']),
  )
  let pods: Pod[] = []
  await step('three pods and a Service', async () => {
    const objects = [...CLUSTER_NODES.map(podOn), SERVICE].map((one) => JSON.stringify(one))
    await kubectl(['apply', '-f', '-'], objects.join('\n---\n'))
    await kubectl(['wait', '--for=condition=Ready', 'pod', '-l', 'app=web', '--timeout=120s'])
    pods = await Promise.all(
      CLUSTER_NODES.map(async (on) => ({
        name: `web-${on}`,
        addresses: (await kubectl(['get', 'pod', `web-${on}`, '-o', 'jsonpath={.status.podIPs[*].ip}'])).split(' '),
      })),
    )
    return pods.map(({ addresses }) => addresses[0]).join(' ')
  })
  const rows: string[] = []
  await step('each pod asks each pod, both families', async () => {
    for (const from of pods) {
      const answers = await Promise.all(pods.map((to) => asked(cluster, from, to)))
      rows.push(`    ${from.name.padEnd(8)}${answers.join('  ')}`)
    }
    return `${pods.length * pods.length * 2} of ${pods.length * pods.length * 2} answered by the pod that was asked`
  })
  await step(`host port ${HOST_PORT} of n1, from n2`, async () =>
    fetched(nodes[1] as Machine, `http://10.78.0.1:${HOST_PORT}/hostname`, 'web-n1'),
  )
  await step(`NodePort ${NODE_PORT}, from outside`, async () =>
    fetched(control, `http://10.78.0.2:${NODE_PORT}/hostname`, 'web-'),
  )
  await step('plumb status, on n2', async () => {
    const { stdout } = await (nodes[1] as Machine).exec([process.execPath, 'status'])
    return stdout.split('\n')[0] ?? ''
  })
  await step('the pods are deleted', async () => {
    await kubectl(['delete', 'pod', '-l', 'app=web', '--wait', '--timeout=100s'])
    // The kubelet removes a sandbox after the API has forgotten the pod.
    await eventually(async () => expect('what is left of them', await Promise.all(nodes.map(leftOn)), ['', '', '']))
    return 'no link and no address of theirs is left on any node'
  })
  print(`\n  asked, IPv4/IPv6:\n            ${pods.map(({ name }) => name.padEnd(13)).join('')}\n${rows.join('\n')}`)
}

async function notReady({ kubectl }: Cluster): Promise<string> {
  const states = (await kubectl(['get', 'nodes', '--no-headers'])).trim().split('\n')
  expect('nodes that are ready without a network', states.filter((line) => / Ready /.test(line)).length, 0)
  return `${states.length} of ${states.length} NotReady`
}

// As conf/plumb-agent.service starts it. The agent installs the plugins and writes the network for containerd.
async function startAgent(node: Machine, kubeconfig: string): Promise<void> {
  await node.exec(['tee', CONF], { stdin: JSON.stringify(NETWORK) })
  node.start('plumb', [
    process.execPath,
    'agent',
    '--kube-subnet-mgr',
    `--kubeconfig-file=${kubeconfig}`,
    `--node-name=${node.name}`,
    `--net-config-path=${CONF}`,
    '--ip-masq',
    '--install-cni',
  ])
}

function podOn(node: string): object {
  const ports = node === CLUSTER_NODES[0] ? { ports: [{ containerPort: 8080, hostPort: HOST_PORT }] } : {}
  const container = { name: 'web', image: IMAGE, imagePullPolicy: 'Never', args: ['netexec'], ...ports }
  return {
    apiVersion: 'v1',
    kind: 'Pod',
    metadata: { name: `web-${node}`, labels: { app: 'web' } },
    spec: {
      nodeName: node,
      terminationGracePeriodSeconds: 0,
      tolerations: [{ operator: 'Exists' }],
      containers: [container],
    },
  }
}

const SERVICE = {
  apiVersion: 'v1',
  kind: 'Service',
  metadata: { name: 'web' },
  spec: { type: 'NodePort', selector: { app: 'web' }, ports: [{ port: 80, targetPort: 8080, nodePort: NODE_PORT }] },
}

// One pod asks another one for its name, once per family.
async function asked({ kubectl }: Cluster, from: Pod, to: Pod): Promise<string> {
  for (const address of to.addresses) {
    const url = `http://${address.includes(':') ? `[${address}]` : address}:8080/hostname`
    expect(
      `the answer of ${to.name} to ${from.name} at ${address}`,
      await kubectl(['exec', from.name, '--', 'curl', '-s', '-g', '-m', '5', url]),
      to.name,
    )
  }
  return 'ok / ok    '
}

async function leftOn(node: Machine): Promise<string> {
  return (
    await node.exec(['sh', '-c', 'ip -o link show master cni0; ls /var/lib/cni/networks/cbr0 | grep "^[0-9a-f]*[.:]"'])
  ).stdout
}

// kube-proxy and the agent may take a moment with a rule.
async function fetched(from: Machine, url: string, want: string): Promise<string> {
  return eventually(async () => {
    const { stdout } = await from.exec(['curl', '-s', '-m', '2', url])
    if (!stdout.startsWith(want)) throw new Error(`${url}: saw ${JSON.stringify(stdout)}, want ${want}`)
    return `${stdout} answered`
  })
}

async function eventually<T>(work: () => Promise<T>): Promise<T> {
  for (const end = performance.now() + WAIT_MS; ; await Bun.sleep(200)) {
    try {
      return await work()
    } catch (cause) {
      if (performance.now() > end) throw cause
    }
  }
}
