// lane: netns
// Tests lib/verbs/orphans.ts.
import assert from 'node:assert/strict'
import { execa } from 'execa'
import { inNamespaces, type Namespace, plugin, until } from '../../support/harness.ts'
import { portNetwork } from '../../support/host-ports.ts'
import { bridgeConf, containerId, network, traces } from '../../support/network.ts'
import { patient } from '../../support/patience.ts'

const PORTS = [{ hostPort: 8080, containerPort: 80 }]
const FUSED = {
  portmap: {},
  firewall: {},
  ipMasq: true,
  capabilities: { portMappings: true },
  runtimeConfig: { portMappings: PORTS },
}

describe('what a pod left that another program has removed', () => {
  for (const isGone of [false, true])
    it(
      `the next owner of its address is not reached by its host port; its namespace ${isGone ? 'is gone' : 'lives'}`,
      inNamespaces(['node', 'pod', 'next'], async ({ node, pod, next }) => {
        const net = portNetwork(node)
        const first = await net.add(pod, PORTS)
        await forgotten(node, pod, net.bridge, isGone)
        const second = await net.add(next, [])
        assert.deepEqual(
          second['ips'].map(({ address }: { address: string }) => address),
          first['ips'].map(({ address }: { address: string }) => address),
        )
        assert.doesNotMatch(await elements(node), /8080/)
        assert.deepEqual(traces(pod, net.conf), [])
      }),
    )

  it(
    'the same where portmap and firewall work within bridge',
    inNamespaces(['node', 'pod', 'next'], async ({ node, pod, next }) => {
      const conf = {
        ...bridgeConf({ isDefaultGateway: true, ...FUSED }),
        ipam: { type: 'static', addresses: [{ address: '10.1.0.2/24' }] },
      }
      const net = network(node, conf)
      await net.add(pod)
      await forgotten(node, pod)
      await network(node, { ...conf, runtimeConfig: {} }).add(next)
      assert.doesNotMatch(await elements(node), /8080/)
      assert.deepEqual(traces(pod, conf), [])
    }),
  )

  it(
    'the pod of another network that has the same address keeps its host port',
    inNamespaces(['node', 'pod', 'next'], async ({ node, pod, next }) => {
      const one = portNetwork(node, { bridge: { bridge: 'br1' } })
      await one.add(pod, PORTS)
      await portNetwork(node).add(next, [])
      assert.match(await elements(node), /8080/)
    }),
  )
})

describe('attachments that are made again without a DEL', () => {
  const IDS = Array.from({ length: 8 }, (_, i) => `again-${i}`)
  const PODS = [...IDS.map((id) => `old-${id}`), ...IDS.map((id) => `new-${id}`)]

  it(
    'at once, in other namespaces, each with the address that another had: none waits for another for long, and none loses its link',
    inNamespaces(['node', ...PODS], async (ns, test) => {
      test.timeout(60_000)
      const { node } = ns as { node: Namespace }
      const pods = ns as Readonly<Record<string, Namespace>>
      const add = async (id: string, age: string, last: number) => {
        const conf = {
          ...bridgeConf({ isDefaultGateway: true, ipMasq: true }),
          name: 'again',
          ipam: { type: 'static', addresses: [{ address: `10.1.0.${last}/24` }] },
        }
        return plugin(
          'bridge',
          { command: 'ADD', conf, containerId: id, netns: pods[`${age}-${id}`] as Namespace },
          node,
        )
      }
      for (const [i, id] of IDS.entries()) assert.equal((await add(id, 'old', 10 + i)).status, 0)
      await Promise.all(
        IDS.map((id) =>
          execa('ip', ['netns', 'delete', (pods[`old-${id}`] as Namespace).path.replace('/run/netns/', '')]),
        ),
      )
      await until(async () => (await node.ip('-o', 'link', 'show', 'type', 'veth')) === '')
      const began = Date.now()
      const done = await Promise.all(IDS.map((id, i) => add(id, 'new', 10 + ((i + 1) % IDS.length))))
      assert.deepEqual(
        done.map(({ status, stdout }) => (status === 0 ? '' : stdout)),
        IDS.map(() => ''),
      )
      assert.ok(Date.now() - began < patient(25_000), `${Date.now() - began} ms`)
      for (const id of IDS)
        assert.match(await (pods[`new-${id}`] as Namespace).ip('-o', '-4', 'address', 'show', 'eth0'), /10\.1\.0\.1\d/)
    }),
  )
})

/** Removes a pod's link, or its namespace, and its reservation, as the DEL of another program does. */
async function forgotten(
  node: Namespace,
  pod: Namespace,
  bridge?: { readonly ipam?: { readonly dataDir?: string } },
  isGone = false,
): Promise<void> {
  if (isGone) await execa('ip', ['netns', 'delete', containerId(pod)])
  else await pod.ip('link', 'delete', 'eth0')
  if (!bridge?.ipam?.dataDir) return
  const { status, stderr } = await node.exec(['sh', '-c', `cd ${bridge.ipam.dataDir}/net*; rm -f 10.* fd* last*`])
  assert.equal(status, 0, stderr)
}

async function elements(node: Namespace): Promise<string> {
  return (await node.exec(['nft', 'list', 'table', 'inet', 'plumb'])).stdout
}
