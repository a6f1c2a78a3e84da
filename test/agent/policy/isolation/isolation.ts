// Random histories of one node: pods that come, go and use addresses again, labels, policies of all tiers and a Service.
// Flows go in both directions, frames have tags, the API lags, and agents end. After each step every pair and every flow
// is compared with the oracle (agent/policy/oracle.ts). isolation.test.ts runs this file in its own namespaces.
// Arguments: FIRST COUNT MS [offloaded]. It plays the histories FIRST, FIRST + 1 and so on for at most MS milliseconds, and
// prints JSON, a line for each. `offloaded`: those with flows in the fast path (offloaded.ts), whose pods stay from one to
// the next.
import assert from 'node:assert/strict'

import { execa } from 'execa'
import type { Netns } from '../../../../lib/text/values.ts'
import { kubeServer } from '../../../support/kube-server.ts'
import { type Cluster, fileStore, inCluster, type Node } from '../../../support/nodes.ts'
import { generator } from '../../../support/random.ts'
import { lead, NAMES, NODE_NAME, OUTSIDE, OUTSIDE_NAME, slotOf, startProber } from './ends.ts'
import { Fixture, failingNft } from './fixture.ts'
import { IS_OFFLOADED } from './mode.ts'
import { Offloaded, seen } from './offloaded.ts'
import { offloadedStepOf, openAllowed } from './offloaded-steps.ts'
import { labelsOf, type Numbers, stepOf } from './steps.ts'
import { World } from './world.ts'

/** What came of one history. `failure` says what the kernel did that the oracle does not, with the steps before. */
export interface Played {
  readonly seed: number
  readonly steps: number
  readonly ms: number
  /** Of flows in the fast path, in all histories so far: how often a step ended one, and how often one went on. */
  readonly ended?: number
  readonly kept?: number
  readonly failure?: string
}

const STEPS = 10
/** Besides the one that opens flows. A machine in software takes seconds for each. */
const OFFLOADED_STEPS = 4
// The pods of bridges are in the node's subnet, and those of ptp are not.
const CONF = {
  Network: '10.244.0.0/16',
  SubnetMin: '10.244.1.0',
  SubnetMax: '10.244.1.0',
  Backend: { Type: 'vxlan' },
  ...(IS_OFFLOADED && {
    EnableIPv6: true,
    IPv6Network: 'fd00:244::/48',
    IPv6SubnetMin: 'fd00:244:0:1::',
    IPv6SubnetMax: 'fd00:244:0:1::',
  }),
}

async function play(fixture: Fixture, seed: number): Promise<Played> {
  const began = performance.now()
  const random = randoms(seed)
  fixture.furnish()
  // A history begins with two pods.
  for (const slot of fixture.slots.slice(0, 2)) {
    slot.uid = fixture.newUid()
    fixture.object(slot, labelsOf(random, slot.name))
    await fixture.add(slot, random(2) === 0 ? 'ptp' : 'bridge')
  }
  let failure = await fixture.check(false)
  let steps = 0
  for (; failure === undefined && steps < STEPS; steps++) {
    const step = stepOf(fixture, random)
    fixture.steps.push(step.text)
    await step.work()
    failure = await fixture.check(step.isStrict)
  }
  const ms = Math.round(performance.now() - began)
  if (failure === undefined) {
    await fixture.clear()
    return { seed, steps, ms }
  }
  return {
    seed,
    steps,
    ms,
    failure: await reportOf(fixture, seed, failure),
  }
}

async function playOffloaded(fixture: Fixture, offloaded: Offloaded, seed: number): Promise<Played> {
  const began = performance.now()
  const random = randoms(seed)
  for (const slot of fixture.slots) {
    const isNew = slot.ips.length === 0
    if (isNew) slot.uid = fixture.newUid()
    fixture.object(slot, labelsOf(random, slot.name))
    if (isNew) await fixture.add(slot, random(2) === 0 ? 'ptp' : 'bridge')
  }
  let [failure, steps] = [undefined as string | undefined, 0]
  for (; failure === undefined && steps <= OFFLOADED_STEPS; steps++) {
    const step = steps === 0 ? openAllowed(fixture, random) : offloadedStepOf(fixture, random)
    failure = await offloaded.begin()
    fixture.steps.push(step.text)
    if (failure === undefined) await step.work()
    failure ??= await offloaded.check(step)
  }
  failure ??= await offloaded.begin()
  const ms = Math.round(performance.now() - began)
  if (failure !== undefined) failure = await reportOf(fixture, seed, failure)
  else await fixture.clear(true)
  return { seed, steps, ms, ...seen, ...(failure !== undefined && { failure }) }
}

async function reportOf(fixture: Fixture, seed: number, failure: string): Promise<string> {
  return `history ${seed}:\n  ${fixture.steps.join('\n  ')}\n${failure}\n${await fixture.told()}`
}

function randoms(seed: number): Numbers {
  const next = generator(Math.imul(seed + 1, 0x9e3779b1))
  return (below) => (next() * 2 ** 32) % below
}

const sh = (script: string) => execa('sh', ['-ec', script])

async function histories(cluster: Cluster, world: World, first: number, count: number, ms: number): Promise<void> {
  const node = cluster.nodes[0] as Node
  const unique = node.ns.path.slice(node.ns.path.lastIndexOf('/') + 1)
  const names = NAMES.map((name) => ({ name, netns: `${unique}-${name}` }))
  const setup = [
    'sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1',
    'ip link add br0 type bridge',
    'sysctl -qw net.bridge.bridge-nf-call-iptables=1 net.bridge.bridge-nf-call-ip6tables=1',
    ...names.flatMap(({ netns }) => [`ip netns add ${netns}`, `ip -n ${netns} link set lo up`]),
  ]
  const made = await node.ns.exec(['sh', '-ec', setup.join('\n')])
  assert.equal(made.status, 0, made.stderr)
  const slots = names.map(({ name, netns }) => slotOf(name, netns))
  const own = startProber(NODE_NAME, ['nsenter', `--net=${node.ns.path}`])
  const outside = startProber(OUTSIDE_NAME, [])
  const probers = [...slots.map(({ prober }) => prober), own, outside]
  let offloaded: Offloaded | undefined
  try {
    await Promise.all(probers.map((prober) => prober.ready()))
    const fixture = new Fixture(node, world, slots, own, outside)
    fixture.furnish()
    if (IS_OFFLOADED) await failingNft()
    await fixture.start()
    offloaded = IS_OFFLOADED ? new Offloaded(fixture, node.ns.path as Netns) : undefined
    const end = performance.now() + ms
    for (let seed = first; seed < first + count && performance.now() < end; seed++) {
      const played = await (offloaded ? playOffloaded(fixture, offloaded, seed) : play(fixture, seed))
      process.stdout.write(`${JSON.stringify(played)}\n`)
      if (played.failure !== undefined) return
    }
    await fixture.kill('SIGTERM')
  } finally {
    offloaded?.close()
    await Promise.all(probers.map((prober) => prober.end()))
    await node.ns.exec(['sh', '-c', names.map(({ netns }) => `ip netns delete ${netns}`).join('\n')])
  }
}

if (import.meta.main) {
  const [first = 1, count = 1, ms = 0] = process.argv.slice(2).map(Number)
  let kubeconfig = ''
  const options = (cluster: Cluster) => [
    ...fileStore(cluster, CONF),
    '--network-policy=kubernetes',
    '--service-proxy=kubernetes',
    `--kubeconfig-file=${kubeconfig}`,
    '--probe-interval=0',
  ]
  // The namespaces are those of a test, and there is no test to give to it.
  await inCluster(1, options, async (cluster) => {
    await lead(cluster.hub, sh)
    const server = await kubeServer(OUTSIDE[4])
    kubeconfig = server.kubeconfig
    await histories(cluster, new World(server), first, count, ms)
  }).call({} as Mocha.Context)
  process.exit(0)
}
