// lane: long
// Tests agent/doctor: what is wrong with the Nodes of a cluster, as the agent and its API server know them.
import assert from 'node:assert/strict'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { causes, doctor, isClean, isFoundAlone, makeNetwork } from '../../support/doctor.ts'
import { until } from '../../support/harness.ts'
import { API, type Kube, onKube, served } from '../../support/kube-nodes.ts'
import { type KubeServer, refusal } from '../../support/kube-server.ts'
import type { Node } from '../../support/nodes.ts'
import { published } from '../../support/suites/testKube.ts'

const LATE = 45_000
const PREFIX = 'flannel.alpha.coreos.com/'
const NETWORK = { Network: '10.244.0.0/16', Backend: { Type: 'vxlan' } }

function withNodes(
  podCidrs: (n: number) => readonly string[],
  work: (nodes: [Node, Node], kube: Kube) => Promise<void>,
) {
  return onKube(
    2,
    { network: NETWORK, podCidrs },
    () => served(API.v4),
    (nodes, kube) => work(nodes as [Node, Node], kube),
  )
}

/** Waits until the doctor of a node finds something, and returns all that it says. */
async function findings(node: Node) {
  const place = { node, bin: `${node.dir}/bin`, lists: `${node.dir}/net.d` }
  let found = causes(await doctor(place))
  await until(async () => {
    found = causes(await doctor(place))
    return found.length > 0
  }, LATE).catch(() => {})
  return found.map(({ code, text, commands }) => ({ code, text, commands }))
}

describe('plumb doctor and the Nodes of a cluster', () => {
  it(
    'DR29: finds a Node without a pod CIDR; it is clean as soon as the Node has one',
    withNodes(
      (n) => (n === 1 ? [] : ['10.244.2.0/24']),
      async ([one], kube) => {
        const place = makeNetwork(one)
        const agent = one.agent()
        assert.deepEqual(await findings(one), [
          {
            code: 'DR29',
            text: 'The Node n1 has no spec.podCIDR: this node has no subnet, and its pods do not start; run the command on the control plane',
            commands: ['allocate-node-cidrs=true', 'cluster-cidr=10.244.0.0/16'].map(
              (flag) =>
                `sed -i '/- kube-controller-manager$/a\\    - --${flag}' /etc/kubernetes/manifests/kube-controller-manager.yaml`,
            ),
          },
        ])
        await kube.remove('n1')
        await kube.create('n1', ['10.244.1.0/24'])
        await agent.ready(LATE)
        await isClean(place)
      },
    ),
  ).timeout(120_000)

  it(
    'DR26: finds two Nodes with one pod CIDR on the younger one, and nothing on the older one',
    withNodes(
      () => ['10.244.1.0/24'],
      async ([one, other], kube) => {
        await kube.remove('n2')
        const place = makeNetwork(one)
        await one.agent().ready(LATE)
        await isClean(place)
        // The time of creation has whole seconds.
        await Bun.sleep(1100)
        await kube.create('n2', ['10.244.1.0/24'])
        makeNetwork(other)
        other.agent()
        const said = {
          code: 'DR26',
          text: 'The Nodes n2 and n1 have the pod CIDR 10.244.1.0/24, and n1 is older: no other node reaches pods of n2',
          commands: ['kubectl delete node n2'],
        }
        assert.deepEqual(await findings(other), [said])
        await isClean(place)
      },
    ),
  ).timeout(120_000)

  it(
    'DR47: finds a Node that keeps the condition NetworkUnavailable; DR36: and a clock that is off',
    withNodes(
      (n) => [`10.244.${n}.0/24`],
      async ([one], kube) => {
        const place = makeNetwork(one)
        const unavailable = { type: 'NetworkUnavailable', status: 'True', reason: 'NoRouteCreated' }
        await kube.remove('n1')
        await kube.create('n1', ['10.244.1.0/24'], {}, { conditions: [unavailable] })
        const agent = one.agent('--set-node-network-unavailable=false')
        await agent.ready(LATE)
        const [first, ...more] = await findings(one)
        assert.deepEqual(
          [first?.code, first?.text, more],
          [
            'DR47',
            'The Node n1 has the condition NetworkUnavailable, and its agent serves pods: the scheduler sends no pods to this node',
            [],
          ],
        )
        // An agent that may set it does so.
        await agent.stop()
        await one.agent().ready(LATE)
        await isClean(place)
        const { server } = kube as Kube & { readonly server: KubeServer }
        server.aheadMs = 300_000
        server.cut()
        const [clock, ...others] = await findings(one)
        assert.deepEqual(
          [clock?.code, clock?.text.replace(/\d+ s/, 'N s'), clock?.commands, others],
          [
            'DR36',
            'The clock of this node is N s behind that of the API server: certificates and tokens do not count',
            ['timedatectl set-ntp true'],
            [],
          ],
        )
        server.aheadMs = 0
        server.cut()
        await isClean(place)
      },
    ),
  ).timeout(180_000)

  it(
    'DR53: finds a node with another version of plumb, by its annotation; a node with flannel has none',
    withNodes(
      (n) => [`10.244.${n}.0/24`],
      async ([one], kube) => {
        const place = makeNetwork(one)
        await kube.annotate('n2', published(2))
        const { version } = await one.agent().ready(LATE)
        await isClean(place, true)
        assert.equal((await kube.get('n1'))?.metadata.annotations?.[`${PREFIX}plumb-version`], version)
        await kube.annotate('n2', { [`${PREFIX}plumb-version`]: '0.0.1' })
        const [first, ...more] = await findings(one)
        assert.deepEqual(
          [first?.code, first?.text, more],
          [
            'DR53',
            `This node runs plumb ${version}; n2 runs 0.0.1: nodes may not do the same; let the update go to its end`,
            [],
          ],
        )
        await kube.annotate('n2', { [`${PREFIX}plumb-version`]: version })
        await isClean(place, true)
      },
    ),
  ).timeout(120_000)

  it(
    'DR46: finds that the API server is away; it is clean when the server is back',
    withNodes(
      (n) => [`10.244.${n}.0/24`],
      async ([one], kube) => {
        const place = makeNetwork(one)
        const agent = one.agent()
        await agent.ready(LATE)
        await isClean(place)
        await kube.away()
        await isFoundAlone(
          { ...place, agent },
          {
            code: 'DR46',
            severity: 'warning',
            what: 'nobody listens at the API server',
            make: () => undefined,
            says: /^The agent does not reach its store, .*: it goes on with what it knows, and does not see new nodes$/,
          },
        )
        await kube.back()
        await isClean(place)
      },
    ),
  ).timeout(120_000)

  it(
    'DR54: finds a kind of object that the API server does not serve, and one that the role does not allow; the node is not ready and names it',
    withNodes(
      (n) => [`10.244.${n}.0/24`],
      async ([one], kube) => {
        const place = makeNetwork(one)
        const { server } = kube as Kube & { readonly server: KubeServer }
        const list = '/apis/networking.k8s.io/v1/networkpolicies'
        const answered = (status: number, reason: string, message: string) => {
          server.fault = ({ url }) => (url.pathname === list ? refusal(status, reason, message) : undefined)
        }
        answered(404, 'NotFound', 'the server could not find the requested resource')
        const agent = one.agent('--network-policy=kubernetes')
        const said = async (pattern: RegExp) => {
          await until(async () => pattern.test((await agent.status())?.reasons.join('\n') ?? ''), LATE)
          const [first, ...more] = await findings(one)
          assert.deepEqual([first?.code, more], ['DR54', []])
          assert.match(first?.text ?? '', pattern)
          return first?.commands
        }
        assert.deepEqual(
          await said(
            /refused GET .*networkpolicies: 404 the server could not find .*; want an API server that serves it/,
          ),
          ['kubectl api-resources'],
        )
        answered(403, 'Forbidden', 'networkpolicies is forbidden')
        assert.deepEqual(await said(/refused GET .*networkpolicies: 403 networkpolicies is forbidden; want a role/), [
          'kubectl edit clusterrole plumb',
        ])
        server.fault = undefined
        await agent.ready(LATE)
        await isClean(place)
      },
    ),
  ).timeout(120_000)

  it(
    'DR51: finds a node with another backend than the others, which takes the same as they when it is started again',
    withNodes(
      (n) => [`10.244.${n}.0/24`],
      async ([one, other]) => {
        const places = [makeNetwork(one), makeNetwork(other)] as const
        const old = join(one.dir, 'net-conf.json')
        writeFileSync(old, JSON.stringify({ ...NETWORK, Backend: { Type: 'host-gw' } }))
        // The later option counts.
        const agent = one.agent('--net-config-path', old)
        await Promise.all([agent.ready(LATE), other.agent().ready(LATE)])
        await isFoundAlone(
          { ...places[0], agent },
          {
            code: 'DR51',
            what: 'the node began before the change of the network',
            make: () => undefined,
            says: /^This node uses the backend host-gw; n2 uses vxlan: pods of these nodes do not reach each other$/,
          },
        )
        await isClean(places[0])
        await isClean(places[1])
      },
    ),
  ).timeout(120_000)
})
