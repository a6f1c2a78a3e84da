// lane: netns
// Tests cli/fleet and agent/cluster/api.ts: 300 agents by their addresses, and by the API server.
import assert from 'node:assert/strict'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { accessOf } from '../../../agent/cluster/access.ts'
import { Api } from '../../../agent/cluster/api.ts'
import { serveHealth } from '../../../agent/http/server.ts'
import { clusterTargets } from '../../../cli/fleet/cluster.ts'
import { Collector, type Pace } from '../../../cli/fleet/collector.ts'
import type { FleetNode } from '../../../cli/fleet/fleet.ts'
import { stateAt } from '../../../cli/fleet/matrix.ts'
import { type Target, targetsOf } from '../../../cli/fleet/target.ts'
import { cluster, fleetApi, type Member } from '../../support/fleet.ts'
import { until } from '../../support/harness.ts'
import { administer, allowing, type KubeServer, kubeServer, refusal } from '../../support/kube-server.ts'
import { testFleet } from '../../support/suites/testFleet.ts'

const PORT = 9469
const PACE: Partial<Pace> = { everyMs: 400, deadlineMs: 3000, listMs: 500 }

describe('a fleet of agents', () => {
  const ends: (() => void)[] = []
  afterEach(() => {
    for (const end of ends.splice(0)) end()
  })
  function collect(list: ConstructorParameters<typeof Collector>[0], pace = PACE): Collector {
    const collector = new Collector(list, pace)
    const end = new AbortController()
    ends.push(() => end.abort())
    void collector.run(end.signal)
    return collector
  }
  function fixed(targets: readonly Target[]): () => Promise<{ all: readonly Target[] }> {
    return async () => ({ all: targets })
  }

  for (const way of ['by their addresses', 'by a kubeconfig'] as const)
    it(`300 agents ${way}: 10 are dead, 5 slow, 3 of an older version`, async function () {
      this.timeout(90_000)
      const members = cluster(300)
      const dead = members.slice(100, 110)
      const slow = members.slice(200, 205)
      const older = members.slice(250, 253)
      ends.push(...(await served(members, { dead, slow, older })))
      const isByAddress = way === 'by their addresses'
      const list = members.map(({ ip }) => `${ip}:${PORT}`).join(',')
      const targets = isByAddress ? fixed(targetsOf(list)) : byKubeconfig(await fleetApi(members))
      const collector = collect(targets, { everyMs: 60_000, deadlineMs: 20_000, listMs: 60_000 })
      await until(() => collector.isComplete, 60_000)
      const fleet = collector.fleet()
      assert.deepEqual(fleet.counts, { ready: 290, degraded: 0, 'not ready': 0, dead: 10 })
      const names = isByAddress
        ? '127.0.1.101:9469, 127.0.1.102:9469, 127.0.1.103:9469 and 7 more: no agent listens there: the connection is refused'
        : 'node-103, node-106, node-109 and 7 more: no agent listens on port 9469 of its node'
      assert.equal(fleet.sentence, `290 of 300 nodes are ready; 10 do not answer (${names})`)
      const told = new Set(fleet.nodes.flatMap(({ name, slowMs }) => (slowMs === undefined ? [] : [name])))
      for (const { name } of slow) assert.ok(told.has(name), name)
      assert.deepEqual(fleet.versions, { '0.2.0': 287, '0.1.0': 3 })
      const { matrix } = fleet
      assert.equal(matrix?.names.length, 300)
      const [from, to] = [members[250], members[3]].map((one) => matrix?.names.indexOf(one?.name ?? ''))
      assert.equal(matrix && stateAt(matrix, from as number, to as number), 'reachable')
    })
  it('an agent that ends is dead within a round, since when is told, and one that comes back is alive', async () => {
    const members = cluster(3)
    const [first, second] = members as [Member, Member]
    const stops = await served(members)
    ends.push(...stops)
    const collector = collect(
      fixed(
        targetsOf(
          members
            .map(({ ip }) => `${ip}:${PORT}`)
            .join('\n')
            .replaceAll('\n', ','),
        ),
      ),
    )
    await until(() => collector.fleet().counts.ready === 3)
    const before = Date.now()
    stops[0]?.()
    const dead = () => collector.fleet().nodes.find(({ state }) => state === 'dead')
    const lost = (await until(dead)) as FleetNode
    assert.equal(lost.name, first.name)
    assert.equal(lost.cause, 'no agent listens there: the connection is refused')
    assert.ok((lost.deadSince ?? 0) >= before && (lost.deadSince ?? 0) <= Date.now())
    assert.ok((lost.at ?? 0) <= (lost.deadSince ?? 0))
    ends.push(...(await served([first])))
    await until(() => collector.fleet().counts.ready === 3)
    second.source.set({ degraded: ['the store is away'] })
    await until(() => collector.fleet().nodes.some(({ cause }) => cause === 'the store is away'))
    assert.equal(collector.fleet().sentence, '2 of 3 nodes are ready; 1 degraded')
  })
  it('what is no agent is named, and harms nobody', async () => {
    const [one] = cluster(1) as [Member]
    ends.push(...(await served([one])))
    const answers: Record<string, () => Response> = {
      '127.0.2.1': () => new Response('<html>'),
      '127.0.2.2': () => Response.json({ node: 'x'.repeat(300) }),
      '127.0.2.3': () => new Response(new Uint8Array(9_000_000)),
      '127.0.2.4': () => new Response('no', { status: 500 }),
      '127.0.2.5': () => new Response(null, { status: 302, headers: { Location: `http://${one.ip}:${PORT}/summary` } }),
    }
    for (const [hostname, fetch] of Object.entries(answers)) {
      const server = Bun.serve({ hostname, port: PORT, fetch })
      ends.push(() => void server.stop(true))
    }
    const collector = collect(fixed(targetsOf([one.ip, ...Object.keys(answers)].join(','))))
    await until(() => collector.isComplete)
    const causes = Object.fromEntries(collector.fleet().nodes.map(({ name, cause, state }) => [name, cause ?? state]))
    assert.deepEqual(causes, {
      [one.name]: 'ready',
      '127.0.2.1:9469': 'its answer is no JSON: another program answers there',
      '127.0.2.2:9469': 'its answer is no summary of plumb: at is undefined',
      '127.0.2.3:9469': 'its answer is longer than 1 MB',
      '127.0.2.4:9469': 'it answers 500: no',
      '127.0.2.5:9469': 'it answers 302: ',
    })
  })
  it('a list is a file, too, has each address once, and a wrong one is named', () => {
    const dir = mkdtempSync('/tmp/fleet-')
    ends.push(() => rmSync(dir, { recursive: true }))
    writeFileSync(
      `${dir}/agents`,
      '192.0.2.1 # rack 1\n192.0.2.1:9469\n\n[2001:db8::1]:80\n2001:db8::2\nnode-7.example:9000\n',
    )
    const names = (list: string) => targetsOf(list).map(({ name }) => name)
    const all = ['192.0.2.1:9469', '[2001:db8::1]:80', '[2001:db8::2]:9469', 'node-7.example:9000']
    assert.deepEqual(names(`${dir}/agents`), all)
    assert.deepEqual(names('192.0.2.1:80'), ['192.0.2.1:80'])
    for (const [list, why] of [
      ['', /--agents "": it names no agent/],
      ['http://x', /--agents "http:\/\/x": want HOST:PORT/],
      ['a:b', /--agents "a:b": want HOST:PORT/],
      ['a/b', /want HOST:PORT/],
      ['u@a', /want HOST:PORT/],
      [`${dir}/none`, /Cannot read --agents ".*none": ENOENT/],
    ] as const)
      assert.throws(() => targetsOf(list), why)
  })

  describe('by the API server', () => {
    testFleet('a server of the test', async () => {
      const server = await kubeServer()
      server.forward = () => 'no kubelet'
      const user = 'system:serviceaccount:team:jane'
      return {
        kubeconfig: server.kubeconfig,
        user,
        async grant(rules) {
          server.fault = allowing(rules, user)
        },
        async post(path, object) {
          const { fault } = server
          server.fault = undefined
          await administer(server, path, object)
          server.fault = fault
        },
      }
    })
    let server: KubeServer
    let members: Member[]
    beforeEach(async () => {
      members = cluster(4)
      server = await fleetApi(members, [{ name: 'bare', zone: 'a' }])
    })
    const list = () => byKubeconfig(server)

    it('asks each agent on its loopback port by port-forward, and takes zones from the Nodes', async () => {
      ends.push(...(await served(members.slice(0, 2))))
      const collector = collect(list())
      await until(() => collector.isComplete)
      const { nodes, sentence } = collector.fleet()
      assert.deepEqual(
        nodes.map(({ name, zone, state, cause }) => [name, zone, state, cause]),
        [
          ['bare', 'a', 'dead', 'no pod of the agent runs there'],
          ['node-1', 'a', 'ready', undefined],
          ['node-4', 'a', 'dead', 'the pod of the agent is Pending'],
          ['node-2', 'b', 'ready', undefined],
          ['node-3', 'c', 'dead', 'no agent listens on port 9469 of its node'],
        ],
      )
      assert.equal(sentence, '2 of 5 nodes are ready; 3 do not answer (bare, node-4, node-3)')
      assert.deepEqual(
        server
          .asked()
          .filter((one) => one.includes('labelSelector'))
          .slice(0, 1),
        ['GET /api/v1/pods?labelSelector=app%3Dplumb-agent&limit=100'],
      )
    })
    it('a node whose port-forward the role refuses is dead for that reason; all of them are one sentence', async () => {
      ends.push(...(await served(members)))
      let refused = /node-1/
      server.fault = ({ url }) =>
        url.pathname.endsWith('/portforward') && refused.test(url.pathname)
          ? refusal(
              403,
              'Forbidden',
              'pods "x" is forbidden: User "jane" cannot get resource "pods/portforward" in API group ""',
            )
          : undefined
      const collector = collect(list())
      const why =
        'the Kubernetes API does not allow it to User "jane": want a role with get and create of pods/portforward'
      await until(() => collector.isComplete && collector.fleet().counts.ready === 2)
      assert.equal(collector.fleet().nodes.find(({ name }) => name === 'node-1')?.cause, why)
      refused = /./
      await until(() => collector.fleet().dead[0]?.nodes.length === 3)
      assert.deepEqual(collector.fleet().dead[0], { what: why, nodes: ['node-1', 'node-2', 'node-3'] })
    })
    it('lists that the role refuses are one sentence, and no node is made up', async () => {
      ends.push(...(await served(members)))
      let refused = /\/pods$/
      server.fault = ({ url }) => {
        const what = url.pathname.split('/').at(-1)
        return refused.test(url.pathname)
          ? refusal(403, 'Forbidden', `${what} is forbidden: User "jane" cannot list resource "${what}"`)
          : undefined
      }
      const collector = collect(list())
      await until(() => collector.isComplete)
      const fleet = collector.fleet()
      assert.match(fleet.note ?? '', /^The Kubernetes API at \S+ refused GET \/api\/v1\/pods: 403 pods is forbidden/)
      assert.match(fleet.sentence, /^0 of 5 nodes are ready; 5 do not answer \(.*its agent is not known\); The Kub/)
      refused = /\/(pods|nodes)$/
      await until(() => collector.fleet().nodes.length === 0)
      assert.match(collector.fleet().sentence, /refused GET \/api\/v1\/nodes: 403.*; The Kub.*\/pods: 403/)
      refused = /\/nodes$/
      await until(() => collector.fleet().counts.ready === 3)
      assert.deepEqual(
        collector.fleet().nodes.map(({ name }) => name),
        // The zone of a dead one is not known without its Node.
        ['node-4', 'node-1', 'node-2', 'node-3'],
      )
    })
    it('goes on with the agents that are known while the API server is away', async () => {
      ends.push(...(await served(members)))
      const collector = collect(list())
      await until(() => collector.fleet().counts.ready === 3)
      server.close()
      await until(() => collector.fleet().counts.dead === 5 && collector.fleet().note)
      const { nodes, note } = collector.fleet()
      assert.match(note ?? '', /^The Kubernetes API at \S+ does not answer/)
      assert.match(
        nodes.find(({ name }) => name === 'node-2')?.cause ?? '',
        /^The Kubernetes API at \S+ does not answer/,
      )
      server.open()
      await until(() => collector.fleet().counts.ready === 3)
      await until(() => collector.fleet().note === undefined)
    })
  })
})

function byKubeconfig({ kubeconfig }: KubeServer) {
  const api = new Api(accessOf({ kubeconfig }), 'plumb-top/test')
  return (signal: AbortSignal) => clusterTargets(api, signal)
}

interface Kinds {
  readonly dead?: readonly Member[]
  readonly slow?: readonly Member[]
  readonly older?: readonly Member[]
}

// Serves each member at its address, in this process. Gives what ends them.
async function served(members: readonly Member[], { dead = [], slow = [], older = [] }: Kinds = {}) {
  const ends: (() => void)[] = []
  for (const member of members) {
    const { ip: address, source, name } = member
    if (dead.includes(member)) continue
    if (older.includes(member)) {
      const status = () => ({ ...source.status(), version: '0.1.0', findings: undefined })
      ends.push(answering(address, (path) => (path === '/status' ? Response.json(status()) : undefined)))
    } else if (slow.includes(member)) {
      const inner = await serveHealth(
        { address: `127.0.3.${name.slice(5)}`, port: PORT, socket: `/run/${name}` },
        source,
      )
      const ask = async (path: string) => {
        await Bun.sleep(1200)
        return new Response(await (await fetch(`http://127.0.3.${name.slice(5)}:${PORT}${path}?row`)).text())
      }
      ends.push(() => inner.stop(), answering(address, ask))
    } else {
      const one = await serveHealth({ address, port: PORT, socket: `/run/${name}.sock` }, source)
      ends.push(() => one.stop())
    }
  }
  return ends
}

function answering(hostname: string, answer: (path: string) => Response | Promise<Response> | undefined): () => void {
  const server = Bun.serve({
    hostname,
    port: PORT,
    fetch: (request) => answer(new URL(request.url).pathname) ?? new Response('', { status: 404 }),
  })
  return () => void server.stop(true)
}
