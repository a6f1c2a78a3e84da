import sample from '../../conf/flannel.conflist' with { type: 'text' }
import { networkOf } from '../../lib/text/cidr.ts'
import { type Cidr, parseCidr } from '../../lib/text/ip.ts'
import { print } from '../output.ts'
import { addPod, delPod, type Pod, type PodHome } from './acts.ts'
import { type Agent, cleanup, startAgents, statusOf, stopAgents } from './agents.ts'
import { makeNodes, makePods, NODES, UNDERLAY } from './cluster.ts'
import { must } from './exec.ts'
import { type Flows, keepPinging, pingAll } from './pings.ts'
import { remains } from './remains.ts'
import { expect, step } from './screen.ts'
import { type Store, storeOf } from './stores.ts'
import { counts, difference, type Traces } from './traces.ts'
import type { StoreName } from './wish.ts'

type BackendName = 'vxlan' | 'host-gw'
/** The subnets of each node, in the order of the nodes. */
type Subnets = readonly (readonly Cidr[])[]

/**
 * The MTU of a pod in bytes, for an underlay MTU of 1500. A tunnel over IPv6 takes 70 bytes of it (flannel,
 * pkg/backend/vxlan).
 */
const MTU: Readonly<Record<BackendName, number>> = { vxlan: 1430, 'host-gw': 1500 }
/** The node whose tunnel is deleted. */
const HURT = 'n2'

/**
 * Tells the story of three nodes with an agent and a pod each. They use tunnels first, and the demo deletes one tunnel.
 * Then they use routes. At the end the demo removes everything. Throws StepError.
 */
export async function playNodes(name: StoreName): Promise<void> {
  const place = name === 'file' ? 'a folder' : 'etcd'
  print(`plumb demo: three nodes with an agent each, their leases in ${place}, in private namespaces too\n`)
  const store = storeOf(name)
  const conf = JSON.parse(sample)
  const network: string = conf.name
  const counted: Traces[] = []
  const count = async () => void counted.push(await remains(store))
  await step('three nodes on one bridge', async () => {
    await makeNodes()
    await makePods(conf)
    return `n1 n2 n3: ${UNDERLAY.v4(1)} to 3, ${UNDERLAY.v6(1)} to 3`
  })
  await step(name === 'file' ? 'a folder for the leases' : 'etcd, started', async () => {
    const where = await store.begin()
    await count()
    return where
  })
  const agents = await begin(store)
  const subnets = await leases(store)
  const pods = await add(network, subnets)
  await matrix(pods, 'vxlan', count)
  if (store.hang) await step('etcd hangs from here', store.hang)
  await heal(pods)
  if (store.goOn) await step('etcd goes on', store.goOn)
  const others = await change(agents, store, pods)
  const anew = await renew(network, subnets)
  await matrix(anew, 'host-gw', count)
  await removal(network, store, others)
  await step('what the nodes have left', async () => {
    await count()
    return leftovers(counted, anew, name)
  })
  print(`\n${counts(['at start', 'on vxlan', 'on host-gw', 'at end'], counted)}`)
  print("  New at the end: cni0 and its addresses, which are the network's and stay for the next pod.")
}

const NETWORK = { Network: '10.244.0.0/16', EnableIPv6: true, IPv6Network: 'fd00:244::/48' } as const

function configure(store: Store, Type: BackendName): Promise<void> {
  return store.configure({ ...NETWORK, Backend: { Type } })
}

async function begin(store: Store): Promise<readonly Agent[]> {
  let agents: readonly Agent[] = []
  await step(store.confAt, async () => {
    await configure(store, 'vxlan')
    return `${NETWORK.Network} ${NETWORK.IPv6Network}, vxlan`
  })
  await step('plumb agent, on each node', async () => {
    agents = await startAgents(store, 'vxlan')
    return 'ready, with 2 peers each'
  })
  return agents
}

// Returns the subnets of each node, in the order of the nodes. The store must have the same leases.
async function leases(store: Store): Promise<Subnets> {
  let subnets: Subnets = []
  await step(store.leasesAt, async () => {
    subnets = await Promise.all(NODES.map(async ({ node }) => Object.values((await statusOf(node))?.subnets ?? {})))
    const { leases } = await store.leases()
    expect('leases', leases, subnets.map((own) => own.map((subnet) => subnet.replace('/', '-')).join('&')).sort())
    return `${leases.length}: ${leases[0]} ...`
  })
  return subnets
}

async function add(network: string, subnets: Subnets): Promise<readonly Pod[]> {
  const pods: Pod[] = []
  for (const [i, place] of NODES.entries())
    await step(`plumb cni add ${network} ${place.name}, on ${place.node}`, async () => {
      const pod = await added(network, place, 'vxlan', subnets[i] ?? [])
      pods.push(pod)
      return pod.addresses.join(' ')
    })
  return pods
}

// Adds a pod. Its addresses must be in the subnets of its node. Its MTU must leave room for the header of the tunnel.
async function added(network: string, place: PodHome, backend: BackendName, subnets: readonly Cidr[]): Promise<Pod> {
  const pod = await addPod(network, place)
  expect(`MTU of eth0 in ${pod.name}`, pod.mtu, MTU[backend])
  expect(
    `subnets of ${pod.name}`,
    pod.addresses.map((address, i) => networkOf(parseCidr(`${address}/${pod.prefixes[i]}`))),
    subnets,
  )
  return pod
}

async function matrix(pods: readonly Pod[], backend: BackendName, count: () => Promise<void>): Promise<void> {
  await step(`ping pod to pod, ${MTU[backend]} bytes`, async () => {
    const answered = await pingEach(pods, MTU[backend])
    await count()
    return answered
  })
}

function pingEach(pods: readonly Pod[], size: number): Promise<string> {
  return pingAll(pods, (from, to) => (from === to ? [] : to.addresses), size)
}

async function heal(pods: readonly Pod[]): Promise<void> {
  let flows: Flows | undefined
  let [before, deleted] = [0, 0]
  await step('pings that go on, 100 a second each', async () => {
    before = await tunnelIndex()
    flows = await keepPinging(pods, MTU.vxlan)
    return `all ${flows.pairs} are answered`
  })
  await step(`fault: flannel.1 of ${HURT} is deleted`, async () => {
    // The clock starts before the command. So the reported time is never shorter than the real outage.
    deleted = Date.now()
    await must(['ip', 'link', 'delete', 'flannel.1'], { node: HURT })
    return `ip -n ${HURT} link delete flannel.1`
  })
  await step('the pings since then', async () => {
    const { cut, ms } = (await flows?.healed(deleted)) ?? {}
    if ((await tunnelIndex()) === before)
      throw new Error(`flannel.1 of ${HURT} is the same as before: nobody had deleted it`)
    return `${cut} of ${flows?.pairs} were cut, all answer again in ${ms} ms`
  })
  await step(`plumb status, on ${HURT}`, async () => {
    const { state, reasons, degraded, kinds } = (await statusOf(HURT)) ?? {}
    expect('whether it is ready, and why not', [state, reasons, degraded], ['ready', [], []])
    const repaired = Object.values(kinds ?? {}).reduce((sum, { repaired }) => sum + repaired, 0)
    if (repaired === 0) throw new Error('it has put nothing right')
    return `ready; ${repaired} things were put right`
  })
}

async function tunnelIndex(): Promise<number> {
  return JSON.parse(await must(['ip', '-j', 'link', 'show', 'dev', 'flannel.1'], { node: HURT }))[0].ifindex
}

async function change(agents: readonly Agent[], store: Store, pods: readonly Pod[]): Promise<readonly Agent[]> {
  let others: readonly Agent[] = []
  await step('host-gw instead, the agents anew', async () => {
    await configure(store, 'host-gw')
    await stopAgents(agents)
    others = await startAgents(store, 'host-gw')
    const tunnels = [...(await remains(store)).values()].flat().filter((name) => /flannel(-v6)?\.1$/.test(name))
    expect('what is left of the tunnels', tunnels, [])
    return 'ready; nothing is left of the tunnels'
  })
  await step('ping, with the pods as they were', () => pingEach(pods, MTU.vxlan))
  return others
}

async function renew(network: string, subnets: Subnets): Promise<readonly Pod[]> {
  let pods: readonly Pod[] = []
  await step('plumb cni del and add, each pod', async () => {
    pods = await Promise.all(
      NODES.map(async (place, i) => {
        await delPod(network, place)
        return added(network, place, 'host-gw', subnets[i] ?? [])
      }),
    )
    return `in the same subnets, with an MTU of ${MTU['host-gw']}`
  })
  return pods
}

async function removal(network: string, store: Store, agents: readonly Agent[]): Promise<void> {
  await step('plumb cni del, each pod', async () => {
    await Promise.all(NODES.map((place) => delPod(network, place)))
    return 'eth0 is gone from each'
  })
  await step('plumb agent cleanup, on each node', async () => {
    await stopAgents(agents)
    await cleanup(store)
    return 'done, after SIGTERM to the agents'
  })
}

// The earlier counts must show as many objects of each kind as three nodes need. They prove that the count works. So
// the last count, without leftovers, is a proof too.
function leftovers([start, ...later]: readonly Traces[], pods: readonly Pod[], store: StoreName): string {
  const end = later.pop()
  if (!start || !end) throw new Error('nothing was counted')
  const records = store === 'file' ? 3 : 6
  // An agent writes network*.json now and then, for a start without the store. So these files do not count.
  const count = (names: readonly string[] = []) => names.filter((name) => !/\/network[^/]*\.json$/.test(name)).length
  const grown = later.map((one) => [...one].map(([what, names]) => [what, count(names) - count(start.get(what))]))
  const lengths = [
    [12, 12, 12, 12, 24, 6, 30, 3, records],
    [6, 6, 12, 12, 0, 3, 30, 3, records],
  ]
  expect(
    'what the nodes had',
    grown,
    grown.map((one, i) => one.map(([what], j) => [what, lengths[i]?.[j]])),
  )
  const own = [
    ...pods.map(({ node }) => `+ ${node}: cni0`),
    ...pods.flatMap(({ node, gateways, prefixes }) =>
      gateways.map((gateway, i) => `+ ${node}: ${gateway}/${prefixes[i]} on cni0`),
    ),
  ]
  expect('what is new since the start', difference(start, end), own)
  return 'nothing: counted at four times'
}
