// lane: netns
// Tests agent/bgp/selection.ts and agent/parts/bgp.ts with the real BIRD: reflectors and routers by the labels of Node
// objects.
import assert from 'node:assert/strict'
import { writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { birdOf, endBird, established, startRouter, TOR, torConf } from '../../support/bgp.ts'
import { type Namespace, namespaceAt, until } from '../../support/harness.ts'
import { API, onKube, served } from '../../support/kube-nodes.ts'
import type { Agent, Node } from '../../support/nodes.ts'

const YAML = `
routeReflectors: { clusterId: 10.0.0.1, nodeSelector: { matchLabels: { bgp: reflector } } }
peers: [{ name: tor, address: ${TOR.ip}, asn: ${TOR.asn}, nodeSelector: { matchLabels: { rack: a } } }]
`

describe('BGP: nodes by their labels', () => {
  it(
    'reflectors and a router of some nodes, by the labels of Node objects; a change of a label is followed, and sessions that stay go on',
    onKube(
      4,
      {
        network: { Network: '10.244.0.0/16', Backend: { Type: 'host-gw' } },
        podCidrs: (n) => [`10.244.${n}.0/24`],
      },
      () => served(API.v4),
      async (nodes, kube) => {
        const dir = dirname(nodes[0]?.dir as string)
        const file = join(dir, 'bgp.yaml')
        writeFileSync(file, YAML)
        for (const name of ['n1', 'n2']) await kube.label(name, { bgp: 'reflector' })
        await kube.label('n3', { rack: 'a' })
        const agents = nodes.map((node) => node.agent(`--bgp-config=${file}`, '--status-address=off'))
        const sessions = async (n: number) =>
          (await (agents[n - 1] as Agent).status())?.bgp?.sessions.map(({ name }) => name).sort() ?? []
        const are = async (wanted: readonly (readonly string[])[]) => {
          for (const [i, names] of wanted.entries())
            await until(async () => (await sessions(i + 1)).join() === names.join(), 30_000).catch(async () =>
              assert.fail(`n${i + 1} has ${await sessions(i + 1)}, want ${names}`),
            )
          for (const agent of agents) await established(agent, undefined, 60_000)
        }
        try {
          for (const agent of agents) await agent.ready(30_000)
          const hub = await hubOf(nodes[0]?.ns as Namespace)
          await hub.ip('addr', 'add', `${TOR.ip}/24`, 'dev', 'hub0')
          const tor = await startRouter(hub, join(dir, 'tor'), torConf({ nodes: [1, 2, 3, 4] }))
          try {
            await are([
              ['n2', 'n3', 'n4'],
              ['n1', 'n3', 'n4'],
              ['n1', 'n2', 'tor'],
              ['n1', 'n2'],
            ])
            const since = async () =>
              (await agents[3]?.status())?.bgp?.sessions.find(({ name }) => name === 'n1')?.since
            const before = await since()
            // The second reflector and the rack move.
            await kube.label('n2', { bgp: null })
            await kube.label('n3', { bgp: 'reflector', rack: 'b' })
            await kube.label('n4', { rack: 'a' })
            await are([
              ['n2', 'n3', 'n4'],
              ['n1', 'n3'],
              ['n1', 'n2', 'n4'],
              ['n1', 'n3', 'tor'],
            ])
            assert.equal(await since(), before)
            await until(async () => /10\.244\.4\.0\/24/.test(await tor.ask('show', 'route')), 20_000)
            assert.doesNotMatch(await tor.ask('show', 'route'), /10\.244\.3\.0\/24 .*n3/)
            await kube.label('n3', { bgp: null })
            const text = 'n1 is the only route reflector; want two at least, as one may die'
            await until(async () => (await agents[3]?.status())?.degraded.includes(text), 20_000)
            await are([['n2', 'n3', 'n4'], ['n1'], ['n1'], ['n1', 'tor']])
            // The labels are not known while the API server is away: the sessions stay.
            await kube.away()
            await agents[3]?.stop()
            const again = nodes[3]?.agent(`--bgp-config=${file}`, '--status-address=off') as Agent
            agents[3] = again
            await again.ready(30_000)
            const up = await birdOf(nodes[3] as Node, 'show', 'protocols')
            assert.equal(up.match(/BGP .*Established/g)?.length, 2, up)
            await kube.back()
            await are([['n2', 'n3', 'n4'], ['n1'], ['n1'], ['n1', 'tor']])
          } finally {
            await tor.stop('SIGKILL')
          }
        } finally {
          await Promise.all(nodes.map(endBird))
        }
      },
    ),
  ).timeout(300_000)
})

// The namespace of the bridge is the one on the other side of a node's link.
async function hubOf(ns: Namespace): Promise<Namespace> {
  const id = (await ns.json('link', 'show', 'dev', 'eth0'))[0]?.['link_netnsid']
  const all = await ns.json('netns', 'list-id')
  const name = all.find(({ nsid }) => nsid === id)?.['name']
  assert.ok(typeof name === 'string', JSON.stringify(all))
  return namespaceAt(name, 'hub')
}
