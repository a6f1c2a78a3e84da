// lane: netns
// Tests agent/page: what the page shows of a real agent.
import assert from 'node:assert/strict'
import { join } from 'node:path'
import { encodeKey } from '../../../agent/lease/lease.ts'
import type { PeerObjects, PodView } from '../../../agent/state/details.ts'
import type { Happening } from '../../../agent/state/happenings.ts'
import { plugin, until } from '../../support/harness.ts'
import { bridgeConf } from '../../support/network.ts'
import { type Agent, fileStore, inCluster, type Node } from '../../support/nodes.ts'

const NETWORK = { Network: '10.244.0.0/16', Backend: { Type: 'vxlan' } }
const LATE = 30_000

describe('what the page shows of a real agent', () => {
  it(
    'objects of a peer, wanted and found; pods with their traffic; a cable that is pulled, in the log',
    inCluster(
      3,
      (cluster) => [...fileStore(cluster, NETWORK), '--probe-interval=1'],
      async ({ hub, nodes }, test) => {
        test.timeout(120_000)
        const [one, two, { ns: pod }] = nodes as [Node, Node, Node]
        const unix = join(one.dir, 'agent.sock')
        const ask = async <T>(path: string) => (await (await fetch(`http://agent${path}`, { unix })).json()) as T
        const [agent, other] = [one.agent(), two.agent()] as [Agent, Agent]
        await agent.ready(LATE)
        await other.ready(LATE)
        const peer = await until(async () => (await agent.status())?.peers[0], LATE)
        assert.ok(peer)
        const path = `/peer?key=${encodeURIComponent(encodeKey(peer.subnets))}`
        const objects = async () => (await ask<PeerObjects | null>(path))?.objects ?? []
        await until(async () => (await objects()).length > 0, LATE)
        const wanted = (await objects()).map((each) => each.wanted)
        assert.deepEqual(
          wanted.map((each) => each.split(' ')[0]),
          ['neigh', 'fdb', ...wanted.slice(2).map((each) => each.split(' ')[0])],
        )
        assert.ok(wanted.some((each) => each.startsWith('route ') && each.includes(peer.subnets.v4 as string)))
        assert.ok(
          (await objects()).every(({ wanted: want, found }) => want === found),
          JSON.stringify(await objects()),
        )
        // The agent makes the route again at once. So somebody deletes it for a while.
        const undoing = undo(one, `${peer.subnets.v4}`)
        await until(async () => (await objects()).some(({ found }) => found === undefined), LATE)
        await undoing.end()
        await until(async () => (await objects()).every(({ wanted: want, found }) => want === found), 60_000)
        assert.equal(await ask('/peer?key=10.9.9.0-24'), null)
        const storm = async () => (await ask<Happening[]>('/log')).find(({ kind }) => kind === 'repair')
        await until(async () => ((await storm())?.count ?? 0) > 1, LATE)

        await pod.exec(['ip', 'link', 'del', 'eth0'])
        const network = bridgeConf({ isGateway: true })
        const call = (command: string) =>
          plugin('bridge', { command, conf: network, containerId: 'page', netns: pod }, one.ns)
        const pods = () => ask<PodView[]>('/pods')
        assert.deepEqual(await pods(), [])
        const added = await call('ADD')
        assert.equal(added.status, 0, added.stdout)
        const [first] = (await until(async () => ((await pods()).length === 1 ? pods() : undefined), LATE)) ?? []
        assert.deepEqual([first?.container, first?.isUp, first?.addresses.length], ['page', true, 1])
        const gateway = (added.result as { ips: { gateway: string }[] }).ips[0]?.gateway as string
        await pod.exec(['ping', '-c', '3', '-i', '0.2', '-s', '1000', gateway])
        const [later] = await pods()
        assert.ok((later?.sent ?? 0) >= (first?.sent ?? 0) + 3000, JSON.stringify([first, later]))
        assert.ok((later?.received ?? 0) >= (first?.received ?? 0) + 3000)
        assert.equal((await call('DEL')).status, 0)
        assert.deepEqual(await pods(), [])

        await until(async () => (await agent.status())?.peers[0]?.probe?.state === 'answers', LATE)
        const texts = async () => (await ask<Happening[]>('/log')).map(({ text }) => text)
        await hub.ip('link', 'set', 'port2', 'down')
        await until(async () => (await agent.status())?.peers[0]?.probe?.state === 'silent', LATE)
        await until(async () => (await texts()).some((text) => text.endsWith('n2: does not answer')), 5000)
        await hub.ip('link', 'set', 'port2', 'up')
        await until(async () => (await texts()).some((text) => text.endsWith('n2: answers again')), LATE)
      },
    ),
  )
})

/** Deletes a route again and again. */
function undo({ ns }: Node, route: string): { end(): Promise<void> } {
  let isEnded = false
  const work = async () => {
    while (!isEnded)
      await ns.exec(['sh', '-c', `for i in 1 2 3 4 5; do ip route del ${route} 2>/dev/null; sleep 0.01; done; true`])
  }
  const working = work()
  return {
    end() {
      isEnded = true
      return working
    },
  }
}
