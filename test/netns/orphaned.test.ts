// Tests lib/verbs/orphans.ts.
import assert from 'node:assert/strict'
import { execa } from 'execa'
import { inNamespaces, type Namespace } from '../support/harness.ts'
import { portNetwork } from '../support/host-ports.ts'
import { bridgeConf, containerId, network, traces } from '../support/network.ts'

const PORTS = [{ hostPort: 8080, containerPort: 80 }]
const FUSED = { portmap: {}, firewall: {}, ipMasq: true, capabilities: { portMappings: true }, runtimeConfig: { portMappings: PORTS } }

describe('what a pod left that another program has removed', () => {
  for (const isGone of [false, true])
    it(
      `[FH1] the next owner of its address is not reached by its host port; its namespace ${isGone ? 'is gone' : 'lives'}`,
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
    '[FH1] the same where portmap and firewall work within bridge',
    inNamespaces(['node', 'pod', 'next'], async ({ node, pod, next }) => {
      const conf = { ...bridgeConf({ isDefaultGateway: true, ...FUSED }), ipam: { type: 'static', addresses: [{ address: '10.1.0.2/24' }] } }
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

/** Removes a pod's link, or its namespace, and its reservation, as the DEL of another program does. */
async function forgotten(node: Namespace, pod: Namespace, bridge?: { readonly ipam?: { readonly dataDir?: string } }, isGone = false): Promise<void> {
  if (isGone) await execa('ip', ['netns', 'delete', containerId(pod)])
  else await pod.ip('link', 'delete', 'eth0')
  if (!bridge?.ipam?.dataDir) return
  const { status, stderr } = await node.exec(['sh', '-c', `cd ${bridge.ipam.dataDir}/net*; rm -f 10.* fd* last*`])
  assert.equal(status, 0, stderr)
}

async function elements(node: Namespace): Promise<string> {
  return (await node.exec(['nft', 'list', 'table', 'inet', 'plumb'])).stdout
}
