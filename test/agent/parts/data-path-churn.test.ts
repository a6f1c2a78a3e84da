// lane: long
// Tests agent/parts/data-path.ts with routed pods that come and go all the time, several at once.
import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { inNamespaces, type Namespace, plugin, until } from '../../support/harness.ts'
import { works } from '../../support/host-ports.ts'
import { fileStore, inCluster, type Node } from '../../support/nodes.ts'

const CONF = { Network: '10.244.0.0/16', EnableIPv6: true, IPv6Network: 'fd00:244::/48', Backend: { Type: 'host-gw' } }
const PODS = Array.from({ length: 12 }, (_, i) => `pod${i}`)
const ROUNDS = 12
/** The longest life of a pod, in milliseconds. The agent looks at links half a second after a change. */
const LIFE_MS = 600

describe('plumb agent with routed pods that come and go', () => {
  it('takes a link that a DEL has just removed for no failure; nothing of the pods is left', async function () {
    await inNamespaces(PODS, async (spaces, test) => {
      test.timeout(300_000)
      const options = ['--install-cni', '--pods=routed', '--status-address=off', '--probe-interval=0']
      await inCluster(
        1,
        (cluster) => [...fileStore(cluster, CONF), ...options],
        async ({ nodes }) => {
          const [node] = nodes as [Node]
          const agent = node.agent()
          await agent.ready(30_000)
          const [path, bin] = [join(node.dir, 'net.d/10-flannel.conflist'), join(node.dir, 'bin')]
          const { name, cniVersion, plugins } = await until(() => JSON.parse(readFileSync(path, 'utf8')))
          const folders = { dataDir: join(node.dir, 'flannel'), ipam: { dataDir: join(node.dir, 'networks') } }
          const conf = { ...plugins[0], name, cniVersion, ...folders }
          const call = (command: string, containerId: string, netns: Namespace) =>
            plugin('flannel', { command, conf, containerId, netns, path: bin, file: join(bin, 'flannel') }, node.ns)
          const live = async (pod: string, i: number) => {
            const netns = spaces[pod] as Namespace
            for (let round = 0; round < ROUNDS; round++) {
              works(await call('ADD', `${pod}-${round}`, netns))
              await Bun.sleep(((i * 53 + round * 97) % 100) * (LIFE_MS / 100))
              works(await call('DEL', `${pod}-${round}`, netns))
            }
          }
          await Promise.all(PODS.map(live))
          assert.doesNotMatch(agent.log(), /Cannot look after the way of pods/)
          await until(async () => (await agent.status())?.state === 'ready')
          const links = (await node.ns.json('link', 'show', 'type', 'veth')).map(({ ifname }) => ifname)
          assert.deepEqual(links, ['eth0'])
          for (const family of ['-4', '-6'] as const)
            assert.doesNotMatch(await node.ns.ip(family, 'route'), /10\.244\.\d+\.\d+ |fd00:244:\S+ dev veth/)
          const { stdout } = await node.ns.exec(['nft', 'list', 'table', 'inet', 'plumb'])
          assert.doesNotMatch(stdout, /elements = \{[^}]*comment/)
        },
      ).call(test)
    }).call(this)
  })
})
