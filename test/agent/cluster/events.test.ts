// lane: long
// Tests agent/state/announcing.ts and agent/cluster/events.ts: what the cluster is told of a node whose network is
// broken.
import assert from 'node:assert/strict'
import { until } from '../../support/harness.ts'
import { API, type Kube, onKube, served } from '../../support/kube-nodes.ts'
import { type KubeServer, refusal } from '../../support/kube-server.ts'
import type { Node } from '../../support/nodes.ts'

const ALONE = {
  network: { Network: '10.244.0.0/16', Backend: { Type: 'host-gw' } },
  podCidrs: (n: number) => [`10.244.${n}.0/24`],
}
const LATE = 60_000
type Served = Kube & { readonly server: KubeServer }

const drops = async ({ ns }: Node) => {
  const text = 'table inet other {\n chain first { type filter hook forward priority 5; policy drop;\n }\n}\n'
  assert.equal((await ns.exec(['nft', '-f', '-'], { stdin: text })).status, 0)
}
const mended = async ({ ns }: Node) =>
  assert.equal((await ns.exec(['nft', 'delete', 'table', 'inet', 'other'])).status, 0)

describe('what the cluster is told of a broken node', () => {
  it(
    'an Event with code and command, and NetworkUnavailable after half a minute; both end with the trouble; the same again counts on',
    onKube(
      1,
      ALONE,
      () => served(API.v4),
      async ([node], kube) => {
        const one = node as Node
        const agent = one.agent()
        await agent.ready(30_000)
        const condition = async () =>
          (await kube.get('n1'))?.status?.conditions?.find(({ type }) => type === 'NetworkUnavailable')
        const events = () => (kube as Served).server.list('/api/v1/namespaces/default/events') as unknown as Event[]
        const eventOf = async (reason: string, count: number): Promise<Event> => {
          const found = () => events().find((one) => one.reason === reason && one.count === count)
          await until(() => found() !== undefined, LATE)
          return found() as Event
        }
        await until(async () => (await condition())?.['status'] === 'False', LATE)
        await drops(one)
        const told = await eventOf('DR9', 1)
        assert.deepEqual(
          [told.type, told.involvedObject, told.source],
          [
            'Warning',
            { apiVersion: 'v1', kind: 'Node', name: 'n1', uid: 'n1' },
            { component: 'plumb-agent', host: 'n1' },
          ],
        )
        assert.match(told.message, /^The chain inet other first, .*; run .* \(plumb doctor DR9\)$/)
        await until(async () => (await condition())?.['status'] === 'True', LATE)
        const now = await condition()
        assert.deepEqual([now?.['reason'], told.message.startsWith(String(now?.['message']))], ['DR9', true])
        await mended(one)
        await until(async () => (await condition())?.['reason'] === 'FlannelIsUp', LATE)
        await eventOf('NetworkReady', 1)
        await drops(one)
        const again = await eventOf('DR9', 2)
        assert.equal(again.message, told.message)
        assert.equal(events().length, 2)
      },
    ),
  ).timeout(240_000)

  it(
    'a role that may not write Events, as flannel’s: one line in the log, the node is ready',
    onKube(
      1,
      ALONE,
      () => served(API.v4),
      async ([node], kube) => {
        const { server } = kube as Served
        server.fault = ({ method, url }) =>
          method === 'POST' && url.pathname.endsWith('/events')
            ? refusal(403, 'Forbidden', 'events is forbidden')
            : undefined
        const one = node as Node
        const agent = one.agent()
        await agent.ready(30_000)
        await drops(one)
        const said = /Cannot write Events: .*403 events is forbidden; want a role that allows it/g
        await until(() => said.test(agent.log()), LATE)
        await mended(one)
        await until(async () => (await agent.readyz()) === '200 ready\n', LATE)
        assert.equal(agent.log().match(said)?.length, 1)
      },
    ),
  ).timeout(120_000)
})

interface Event {
  readonly type: string
  readonly reason: string
  readonly message: string
  readonly count: number
  readonly involvedObject: object
  readonly source: object
}
