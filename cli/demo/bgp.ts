import sample from '../../conf/flannel.conflist' with { type: 'text' }
import { writeAtomic } from '../../lib/os/files.ts'
import { readText } from '../../lib/os/reading.ts'
import { print } from '../output.ts'
import { addPod, delPod, type Pod } from './acts.ts'
import { type Agent, cleanup, startAgents, statusOf, stopAgents } from './agents.ts'
import { makeNodes, makePods, NODES, UNDERLAY } from './cluster.ts'
import { lines, must } from './exec.ts'
import { fetchFrom, serveIn } from './page.ts'
import { PLACES, runOf } from './places.ts'
import { remains } from './remains.ts'
import { startLogged, until } from './running.ts'
import { expect, step } from './screen.ts'
import { CONNECTIONS, spread } from './spread.ts'
import { storeOf } from './stores.ts'
import { difference } from './traces.ts'

/** The router is the namespace of the demo itself: the nodes' link and their default route are there. */
const ROUTER = { ip: UNDERLAY.v4(UNDERLAY.router), asn: 65_000, dir: '/run/router' } as const
const NODES_ASN = 64_512
/** A host behind the router, and the address of the Service (RFC 5737). */
const WORLD = { name: 'world', ip: '198.51.100.2', gateway: '198.51.100.1' } as const
const [VIP, VIPS] = ['203.0.113.10', '203.0.113.0/24'] as const
const NETWORK = { Network: '10.244.0.0/16', Backend: { Type: 'host-gw' } } as const
/** The node that is killed. */
const KILLED = 'n2'
const LIMIT_MS = 20_000
/** What all nodes see. */
const [FILE, MANIFESTS] = [`${PLACES.store}/bgp.yaml`, `${PLACES.store}/manifests`] as const
const OPTIONS = [`--bgp-config=${FILE}`, `--service-proxy=${MANIFESTS}`, '--status-address=off'] as const

// BFD finds a dead node within a second. Without it the router keeps the routes for the time of a graceful restart.
const BGP = `asn: ${NODES_ASN}
peers: [{ name: tor, address: ${ROUTER.ip}, asn: ${ROUTER.asn}, bfd: true }]
announce: { loadBalancerIPs: [${VIPS}] }
`

/**
 * Tells the story of three nodes and a router: pods and a Service's address are reached from outside, a node is killed,
 * and comes back. Throws StepError.
 */
export async function playBgp(): Promise<void> {
  print('plumb demo: three nodes that speak BGP with a router, in private namespaces that end with it\n')
  const conf = JSON.parse(sample)
  const store = storeOf('file')
  await step('three nodes, a router, a host outside', async () => {
    await makeNodes()
    await makeOutside()
    await makePods(conf)
    return `${UNDERLAY.v4(1)} to 3, ${ROUTER.ip}, ${WORLD.ip}`
  })
  const before = await remains(store)
  await step('BIRD on the router', async () => {
    await startRouter()
    return `AS ${ROUTER.asn}; it waits for the nodes`
  })
  let agents: readonly Agent[] = []
  await step('plumb agent --bgp-config, on each node', async () => {
    await store.begin()
    await store.configure(NETWORK)
    await must(['mkdir', '-p', MANIFESTS])
    writeAtomic(FILE, BGP, { durable: false })
    agents = await startAgents(store, 'host-gw', { more: OPTIONS })
    return 'ready, with 2 peers each'
  })
  await step('plumb bgp, on each node', async () => {
    for (const { node } of NODES) await established(node)
    return `AS ${NODES_ASN}: sessions with the router and others`
  })
  const pods = await makeServers(conf.name)
  await step('the routes to pods, on the router', async () => {
    for (const [i, pod] of pods.entries()) await waysTo(subnetOf(pod), [i])
    return `${pods.length} subnets, each by its own node`
  })
  await step('HTTP from outside to each pod, no NAT', async () => {
    for (const { name, addresses } of pods) await fetchFrom(WORLD.name, addresses[0] as string, name, WORLD.ip)
    return `each answered, and saw ${WORLD.ip}`
  })
  await step('a Service of these pods', async () => {
    publish(pods)
    await waysTo(VIP, [0, 1, 2])
    return `${VIP}: a way by each node`
  })
  const names = pods.map(({ name }) => name)
  const all = () => spread(`${CONNECTIONS} connections from outside`, WORLD.name, `http://${VIP}/`, names)
  await all()
  await die(agents, pods, names)
  await step(`${KILLED} is back`, async () => {
    await must(['ip', 'link', 'set', `p-${KILLED}`, 'up'])
    const [back] = await startAgents(store, 'host-gw', { more: OPTIONS, nodes: [KILLED] })
    agents = agents.map((agent) => (back && agent.node === KILLED ? back : agent))
    await established(KILLED)
    await waysTo(VIP, [0, 1, 2])
    return 'the router has a way by each node again'
  })
  await all()
  await step('the pods go; plumb agent cleanup', async () => {
    for (const place of NODES) await delPod(conf.name, place)
    await stopAgents(agents)
    await cleanup(store, OPTIONS)
    await noRoutes()
    const left = difference(before, await remains(store)).filter((name) => !name.includes('cni0'))
    expect('what is new since the start', left, [])
    return 'no BIRD on a node, no route on the router'
  })
}

// A node that dies says nothing: its link is out, and nobody withdraws its routes.
async function die(agents: readonly Agent[], pods: readonly Pod[], names: readonly string[]): Promise<void> {
  const dead = NODES.findIndex(({ node }) => node === KILLED)
  let begun = 0
  await step(`${KILLED} is killed`, async () => {
    const bird = birdOf(KILLED)
    begun = performance.now()
    await must(['ip', 'link', 'set', `p-${KILLED}`, 'down'])
    for (const { node, child } of agents) if (node === KILLED) child.kill('SIGKILL')
    process.kill(bird, 'SIGKILL')
    return 'link down, SIGKILL to its agent and its BIRD'
  })
  await step('what the router does', async () => {
    await waysTo(
      VIP,
      NODES.flatMap(({ node }, i) => (node === KILLED ? [] : [i])),
    )
    await waysTo(subnetOf(pods[dead] as Pod), [])
    return `no way by ${KILLED} after ${Math.round(performance.now() - begun)} ms, by BFD`
  })
  const others = names.filter((_, i) => i !== dead)
  await spread(`${CONNECTIONS} connections from outside`, WORLD.name, `http://${VIP}/`, others)
}

async function makeOutside(): Promise<void> {
  const { name, ip, gateway } = WORLD
  await must(['ip', 'netns', 'add', name])
  await lines('host', [`link add w0 up type veth peer name eth0 netns ${name}`, `addr add ${gateway}/24 dev w0`])
  await lines(name, ['link set eth0 up', `addr add ${ip}/24 dev eth0`, `route add default via ${gateway}`])
  // Ports choose the way, so that the connections of one client are spread.
  await must(['sysctl', '-qw', 'net.ipv4.ip_forward=1', 'net.ipv4.fib_multipath_hash_policy=1'])
}

async function startRouter(): Promise<void> {
  const { ip, asn, dir } = ROUTER
  const taken = [`${NETWORK.Network}{24,24}`, `${VIPS}{32,32}`].join(', ')
  const text = [
    `log "${dir}/bird.log" all;`,
    `router id ${ip};`,
    'protocol device { }',
    'protocol kernel { ipv4 { export where source = RTS_BGP; }; merge paths on; }',
    'protocol bfd { interface "*" { interval 300 ms; multiplier 3; }; }',
    ...NODES.flatMap(({ node }, i) => [
      `protocol bgp ${node} {`,
      `  local ${ip} as ${asn}; neighbor ${UNDERLAY.v4(i + 1)} as ${NODES_ASN}; direct; passive; bfd;`,
      '  error wait time 1, 2;',
      `  ipv4 { import where net ~ [ ${taken} ]; export none; };`,
      '}',
    ]),
  ]
  await must(['mkdir', '-p', dir])
  writeAtomic(`${dir}/bird.conf`, `${text.join('\n')}\n`, { durable: false })
  const { child, said } = startLogged(['bird', '-f', '-c', `${dir}/bird.conf`, '-s', `${dir}/bird.ctl`])
  await until(
    async () => {
      if (child.exitCode !== null) throw new Error(`BIRD ended with ${child.exitCode}: ${said()}`)
      return readText(`${dir}/bird.log`)?.includes('Started') || undefined
    },
    LIMIT_MS,
    () => `BIRD has not started: ${said()}`,
  )
}

async function makeServers(network: string): Promise<readonly Pod[]> {
  const pods: Pod[] = []
  await step('a pod with a server on each node', async () => {
    for (const place of NODES) {
      pods.push(await addPod(network, place))
      await serveIn(place.name, place.node)
    }
    return pods.map(({ addresses }) => addresses[0]).join(' ')
  })
  return pods
}

/** Waits until a node has a session with the router and with each other node. */
async function established(node: string): Promise<void> {
  let seen = ''
  await until(
    async () => {
      const sessions = (await statusOf(node))?.bgp?.sessions ?? []
      seen = sessions.map(({ name, state, reason = '' }) => `${name} ${state} ${reason}`.trim()).join(', ')
      return (sessions.length === NODES.length && sessions.every(({ state }) => state === 'Established')) || undefined
    },
    LIMIT_MS,
    () => `${node} has the sessions ${seen || 'of no one'}`,
  )
}

/** Waits until the router's kernel has exactly the ways to a destination that lead by these nodes. */
async function waysTo(to: string, nodes: readonly number[]): Promise<void> {
  const wanted = nodes.map((i) => UNDERLAY.v4(i + 1)).join(' ')
  let found = ''
  await until(
    async () => {
      const shown = await must(['ip', 'route', 'show', to.includes('/') ? to : `${to}/32`, 'proto', 'bird'])
      found = [...shown.matchAll(/via (\S+)/g)]
        .map(([, gateway]) => gateway)
        .sort()
        .join(' ')
      return found === wanted || undefined
    },
    LIMIT_MS,
    () => `the router's ways to ${to}: saw "${found}", want "${wanted}"`,
  )
}

async function noRoutes(): Promise<void> {
  let found = ''
  await until(
    async () => {
      found = (await must(['ip', 'route', 'show', 'proto', 'bird'])).trim()
      return found === '' || undefined
    },
    LIMIT_MS,
    () => `the router still has ${found}`,
  )
}

// The Service is one of type LoadBalancer that keeps the client's address: each node serves its own pod.
function publish(pods: readonly Pod[]): void {
  const items = [
    {
      kind: 'Service',
      metadata: { namespace: 'shop', name: 'web' },
      spec: { clusterIP: '10.96.0.10', type: 'LoadBalancer', externalTrafficPolicy: 'Local', ports: [{ port: 80 }] },
      status: { loadBalancer: { ingress: [{ ip: VIP }] } },
    },
    {
      kind: 'EndpointSlice',
      metadata: { namespace: 'shop', name: 'web-1', labels: { 'kubernetes.io/service-name': 'web' } },
      addressType: 'IPv4',
      ports: [{ name: '', port: 80 }],
      endpoints: pods.map(({ addresses, node }) => ({ addresses: [addresses[0]], nodeName: node })),
    },
  ]
  writeAtomic(`${MANIFESTS}/shop.json`, JSON.stringify({ kind: 'List', items }), { durable: false })
}

function subnetOf({ addresses }: Pod): string {
  return (addresses[0] as string).replace(/\d+$/, '0/24')
}

function birdOf(node: string): number {
  const pid = Number(readText(`${runOf(node)}/plumb/bird/bird.pid`)?.trim())
  if (!Number.isInteger(pid) || pid < 2) throw new Error(`${node} has no BIRD: ${runOf(node)}/plumb/bird/bird.pid`)
  return pid
}
