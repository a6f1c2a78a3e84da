import assert from 'node:assert/strict'
import { existsSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { ping, until } from '../harness.ts'
import { type Kube, onKube } from '../kube-nodes.ts'
import { type Agent, type Node, subnetEnv } from '../nodes.ts'
import { published } from './testKube.ts'

const VXLAN = {
  network: { Network: '10.244.0.0/16', Backend: { Type: 'vxlan' } },
  podCidrs: (n: number) => [`10.244.${n}.0/24`],
}
const SIX = {
  network: { EnableIPv4: false, EnableIPv6: true, IPv6Network: 'fd44::/48', Backend: { Type: 'vxlan' } },
  podCidrs: (n: number) => [`fd44:0:0:${n}::/64`],
}
/** How soon after the end of its cause a fault is over, in milliseconds. */
export const BACK_MS = 5000

/**
 * Defines the tests of agents whose leases are in Kubernetes. `serve` gives an API server at one of the addresses `API`
 * of kube-nodes.ts.
 */
export function testKubeAgent(name: string, serve: (test: Mocha.Context) => Promise<Kube>): void {
  const two = (
    conf: Omit<Parameters<typeof onKube>[1], 'more'> & { readonly more?: readonly string[] },
    work: (nodes: [Node, Node], kube: Kube) => Promise<void>,
  ) => onKube(2, conf, serve, (nodes, kube) => work(nodes as [Node, Node], kube))

  it(
    `${name}: a boot while the API is away, also with a clock that was set back: packets flow as it was known last; ready, degraded and stale until the API comes, then as it says`,
    two({ ...VXLAN, more: ['late'] }, async ([one, other], kube) => {
      await began([one, other])
      const had = subnetEnv(one)
      for (const node of [one, other]) await lost(node)
      // The snapshot is of tomorrow.
      writeFileSync(
        stateFile(other),
        readFileSync(stateFile(other), 'utf8').replace(/"at":\d+/, `"at":${Date.now() + 86_400_000}`),
      )
      await kube.away()
      const agents = [one.agent(), other.agent()] as [Agent, Agent]
      for (const agent of agents) await agent.ready(40_000)
      assert.deepEqual(subnetEnv(one), had)
      await until(() => ping(one.ns, '10.244.2.0'), 20_000)
      await until(() => ping(other.ns, '10.244.1.0'), 20_000)
      const [agent] = agents
      await says(
        agent,
        /^200 degraded: the store is away, going on with what is known: The Kubernetes API at https:\S+ does not answer: .*the network is as it was known at 20\S+Z, before the start/s,
        20_000,
      )
      await until(() => told(agent, /the store does not answer, starting with what was known at/) === 1)
      await kube.back()
      const back = Date.now()
      await kube.create('late', ['10.244.200.0/24'], published(200))
      for (const { ns } of [one, other])
        await until(async () => (await routes(ns)).includes('10.244.200.0/24'), BACK_MS + back - Date.now())
      for (const each of agents) await says(each, /^200 ready$/)
      assert.deepEqual(subnetEnv(one), had)
      // It tells of a store that is away for long once more, and no oftener.
      assert.equal(told(agent, /the store does not answer/), 1, agent.log())
      assert.ok(told(agent, /the store is away/) <= 1, agent.log())
      assert.equal(
        (await kube.get('n1'))?.status?.conditions?.find(({ type }) => type === 'NetworkUnavailable')?.['status'],
        'False',
      )
    }),
  ).timeout(180_000)

  it(
    `${name}: a Node that is deleted: its pods keep their network, and the reason is told; made again with another pod CIDR, it has that within 5 s, and its peers know`,
    two(VXLAN, async ([one, other], kube) => {
      const [agent] = await began([one, other], false)
      await kube.remove('n1')
      await until(async () => !(await routes(other.ns)).includes('10.244.1.0/24'), 10_000)
      await says(agent, /^200 degraded: .*There is no Node "n1" in the cluster/, 10_000)
      assert.equal(subnetEnv(one)?.['FLANNEL_SUBNET'], '10.244.1.1/24')
      assert.match(await routes(one.ns), /10\.244\.2\.0\/24/)
      await kube.create('n1', ['10.244.77.0/24'])
      const made = Date.now()
      await until(() => subnetEnv(one)?.['FLANNEL_SUBNET'] === '10.244.77.1/24', BACK_MS)
      await until(async () => (await routes(other.ns)).includes('10.244.77.0/24'), BACK_MS + made - Date.now())
      await until(() => ping(other.ns, '10.244.77.0'), 10_000)
      // The status goes on for a while to tell of a lease that was removed twice: by the watch, and by the answer to a
      // claim.
      await says(
        agent,
        /^200 (ready|degraded: The lease of 10\.244\.1\.0\/24 is removed from the store, \d+ times so far)$/,
      )
      assert.equal(
        told(
          agent,
          /Kubernetes gave this node 10\.244\.77\.0\/24 instead of 10\.244\.1\.0\/24: no other node reaches pods that started before; start them again/,
        ),
        1,
        agent.log(),
      )
      await until(
        async () =>
          (await kube.get('n1'))?.status?.conditions?.find(({ type }) => type === 'NetworkUnavailable')?.['status'] ===
          'False',
        10_000,
      )
    }),
  ).timeout(120_000)

  it(
    `${name}: a node that has another name after a start has the pod CIDR of its new Node, and its peers forget the old one`,
    two({ ...VXLAN, more: ['renamed'] }, async ([one, other], kube) => {
      const [agent] = await began([one, other], false)
      const mac = async () => (await one.ns.json('link', 'show', 'flannel.1'))[0]?.['address']
      const before = await mac()
      assert.equal(await agent.stop(), 0)
      await kube.remove('n1')
      await kube.create('renamed', ['10.244.78.0/24'])
      const again = one.agent('--node-name', 'renamed')
      await again.ready(30_000)
      assert.equal(subnetEnv(one)?.['FLANNEL_SUBNET'], '10.244.78.1/24')
      await until(
        async () =>
          /^10\.244\.78\.0\/24 /m.test(await routes(other.ns)) && !/^10\.244\.1\.0\/24 /m.test(await routes(other.ns)),
        10_000,
      )
      await until(() => ping(other.ns, '10.244.78.0'), 10_000)
      assert.equal(await mac(), before)
      assert.match(
        (await kube.get('renamed'))?.metadata.annotations?.['flannel.alpha.coreos.com/backend-data'] ?? '',
        new RegExp(String(before)),
      )
    }),
  ).timeout(120_000)

  it(
    `${name}: a peer that does not answer degrades this node, until Kubernetes has no news of it either: then the fault is there`,
    two({ ...VXLAN, more: ['late'] }, async ([one], kube) => {
      // Nobody is at its address.
      await kube.create('late', ['10.244.200.0/24'], published(200))
      await kube.heartbeat('late')
      const agent = one.agent('--probe-interval=2')
      await agent.ready(30_000)
      await says(agent, /^200 degraded: 1 peer does not answer over the overlay: .*"late"/, 30_000)
      await kube.heartbeat('late', 'Unknown')
      await says(agent, /^200 ready$/, 10_000)
      const peers = (await agent.status())?.peers ?? []
      assert.deepEqual(
        peers.map(({ node, probe, isAway }) => [node, probe?.state, isAway]),
        [['late', 'silent', true]],
      )
      await kube.heartbeat('late')
      await says(agent, /^200 degraded: 1 peer does not answer over the overlay: .*"late"/, 10_000)
    }),
  ).timeout(120_000)

  it(
    `${name}: nodes, pods and API of IPv6 alone`,
    two(SIX, async ([one, other], kube) => {
      for (const { ns } of [one, other]) await ns.ip('-4', 'address', 'flush', 'dev', 'eth0')
      const agents = [one.agent(), other.agent()]
      for (const agent of agents) await agent.ready(30_000)
      await until(() => ping(one.ns, 'fd44:0:0:2::'), 20_000)
      const env = subnetEnv(one) ?? {}
      assert.deepEqual(
        [env['FLANNEL_IPV6_NETWORK'], env['FLANNEL_IPV6_SUBNET'], env['FLANNEL_SUBNET']],
        ['fd44::/48', 'fd44:0:0:1::1/64', undefined],
      )
      const said = Object.keys((await kube.get('n1'))?.metadata.annotations ?? {}).filter((key) =>
        key.startsWith('flannel.'),
      )
      assert.deepEqual(said.map((key) => key.replace(/.*\//, '')).sort(), [
        'backend-type',
        'backend-v6-data',
        'kube-subnet-manager',
        'plumb-version',
        'public-ipv6',
      ])
    }),
  ).timeout(120_000)
}

/**
 * Starts the agents, and waits until each has the other's lease. With `kept`, also until both are in the snapshots on
 * disk.
 */
export async function began(nodes: readonly Node[], kept = true): Promise<[Agent, Agent]> {
  const agents = nodes.map((node) => node.agent())
  for (const agent of agents) await agent.ready(30_000)
  for (const { ns } of nodes) await until(async () => (await routes(ns)).includes('10.244.'), 15_000)
  if (kept) {
    for (const node of nodes)
      await until(
        () =>
          existsSync(stateFile(node)) &&
          nodes.every(({ n }) => readFileSync(stateFile(node), 'utf8').includes(`10.244.${n}.0`)),
        20_000,
      )
    for (const agent of agents) await agent.stop('SIGKILL')
  }
  return agents as [Agent, Agent]
}

// What a power loss leaves: the disk. /run and the kernel are empty.
async function lost({ ns, dir }: Node): Promise<void> {
  rmSync(join(dir, 'subnet.env'))
  await ns.ip('link', 'del', 'flannel.1')
  assert.equal((await ns.exec(['nft', 'flush', 'ruleset'])).status, 0)
}

function stateFile({ dir }: Node): string {
  const state = join(dir, 'state')
  return join(
    state,
    (existsSync(state) && readdirSync(state).find((name) => /^network.*\.json$/.test(name))) || 'network.json',
  )
}

/** The routes of the agent. */
export async function routes(ns: Node['ns']): Promise<string> {
  return `${await ns.ip('route', 'show', 'proto', '112')}${await ns.ip('-6', 'route', 'show', 'proto', '112')}`
}

/** Waits until an agent's /readyz says so: the code and the text. */
export async function says(agent: Agent, wanted: RegExp, ms = 15_000): Promise<void> {
  let last = ''
  await until(async () => {
    last = (await agent.readyz()).trim()
    return wanted.test(last)
  }, ms).catch(() => assert.fail(`${last.slice(0, 1000)}\n${agent.log()}`))
}

/** How many lines of an agent's log say so. */
export function told(agent: Agent, what: RegExp): number {
  return agent
    .log()
    .split('\n')
    .filter((line) => what.test(line)).length
}
