import { join } from 'node:path'
import { networkText } from '../../agent/node/install.ts'
import { LAB, type Machine, missing, up } from '../../tools/k8s/lab.ts'
import { median } from '../paired.ts'
import { type Bench, ratios } from '../part.ts'
import { type Bar, short, type Table } from '../report.ts'

const TIMES = 6
const PODS = 30
const IMAGE = 'registry.k8s.io/pause:3.10.2'
const LIMIT_MS = 120_000
const TITLE = `Kubernetes: ${PODS} pods at once on one node`

interface Network {
  readonly name: string
  readonly dir: string
  readonly list: string
}

/**
 * How long a kubelet needs until pods are Ready: with the network that plumb installs, and with what flannel's list
 * makes of the reference plugins.
 */
export async function pods(bench: Bench): Promise<Table> {
  const why = missing()
  if (why !== undefined) return { title: TITLE, method: `Not measured: ${why}.`, head: [], rows: [], bars: [] }
  const cluster = await up({ nodes: ['n1'] })
  try {
    const { kubectl } = cluster
    const [node] = cluster.nodes as [Machine]
    const cidr = await kubectl(['get', 'node', 'n1', '-o', 'jsonpath={.spec.podCIDR}'])
    const gateway = cidr.replace(/0\/24$/, '1/24')
    await must(
      node,
      'mkdir -p /run/flannel && cat >/run/flannel/subnet.env',
      `FLANNEL_NETWORK=10.244.0.0/16\nFLANNEL_SUBNET=${gateway}\nFLANNEL_MTU=1450\nFLANNEL_IPMASQ=true\n`,
    )
    const bridge = {
      type: 'bridge',
      bridge: 'cni0',
      hairpinMode: true,
      isDefaultGateway: true,
      isGateway: true,
      ipMasq: false,
      mtu: 1450,
      ipam: { type: 'host-local', ranges: [[{ subnet: cidr }]], routes: [{ dst: '10.244.0.0/16' }] },
    }
    const networks: readonly Network[] = [
      { name: 'plumb', dir: join(import.meta.dir, '../../dist'), list: networkText('/run/flannel/subnet.env') },
      {
        name: 'reference',
        dir: join(LAB, 'cni-ref'),
        list: JSON.stringify({
          cniVersion: '1.0.0',
          name: 'cbr0',
          plugins: [bridge, { type: 'portmap', capabilities: { portMappings: true } }],
        }),
      },
    ]
    for (const { name, dir } of networks)
      await must(node, `mkdir -p /opt/cni/${name} && cp -a ${dir}/. /opt/cni/${name}/`)
    await must(node, 'rm -rf /opt/cni/bin')
    const seen = new Map(networks.map((one) => [one.name, [] as number[]]))
    // One round that does not count: images and programs come into the caches.
    for (let round = 0; round <= bench.times(TIMES); round++)
      for (const network of round % 2 === 0 ? networks : networks.toReversed()) {
        const ms = await once(node, kubectl, network)
        if (round > 0) seen.get(network.name)?.push(ms)
      }
    const [own = 0, reference = 0] = networks.map(({ name }) => median(seen.get(name) ?? []) / 1000)
    const { cells, bar } = ratios(own, [{ name: 'reference', figure: reference }], 1)
    const bars: Bar[] = bar ? [bar] : []
    return {
      title: TITLE,
      method: `Median of the time from \`kubectl apply\` of ${PODS} pods to the last one that is Ready, in seconds; kubelet and containerd of the lab. The networks in turn on the same node, which is empty before. plumb: the network that its agent installs. Reference: what flannel's list makes, bridge with host-local and portmap, without the process of flannel's own plugin.`,
      head: ['pods', 'n', 'plumb', 'reference', 'ratio', 'bar (ratio)'],
      rows: [[String(PODS), String(bench.times(TIMES)), short(own), short(reference), ...cells, bar?.text ?? '']],
      bars,
    }
  } finally {
    await cluster.down()
  }
}

async function once(
  node: Machine,
  kubectl: (args: readonly string[], stdin?: string) => Promise<string>,
  { name, list }: Network,
): Promise<number> {
  await must(
    node,
    `ln -sfn /opt/cni/${name} /opt/cni/bin; ip link delete cni0 2>/dev/null; rm -rf /var/lib/cni/networks; cat >/etc/cni/net.d/10-net.conflist`,
    list,
  )
  await kubectl(['wait', '--for=condition=Ready', 'node', 'n1', '--timeout=60s'])
  // containerd takes a moment to read the network.
  await Bun.sleep(2000)
  const all = Array.from({ length: PODS }, (_, i) => ({
    apiVersion: 'v1',
    kind: 'Pod',
    metadata: { name: `pod-${i}`, labels: { app: 'bench' } },
    spec: {
      nodeName: 'n1',
      terminationGracePeriodSeconds: 0,
      tolerations: [{ operator: 'Exists' }],
      automountServiceAccountToken: false,
      containers: [{ name: 'c', image: IMAGE, imagePullPolicy: 'Never' }],
    },
  }))
  const started = performance.now()
  await kubectl(['apply', '-f', '-'], all.map((one) => JSON.stringify(one)).join('\n---\n'))
  await kubectl(['wait', '--for=condition=Ready', 'pod', '-l', 'app=bench', '--timeout=120s'])
  const ms = performance.now() - started
  await kubectl(['delete', 'pod', '-l', 'app=bench', '--wait', '--timeout=120s'])
  for (
    const end = performance.now() + LIMIT_MS;
    (await node.exec(['sh', '-c', 'ls /run/netns | wc -l'])).stdout.trim() !== '0';
    await Bun.sleep(200)
  )
    if (performance.now() > end) throw new Error('Pods of the bench do not end')
  return ms
}

async function must(node: Machine, script: string, stdin = ''): Promise<void> {
  const { status, stderr } = await node.exec(['sh', '-c', script], { stdin })
  if (status !== 0) throw new Error(`${script}: ${stderr}`)
}
