// lane: netns
// Tests conf.
import assert from 'node:assert/strict'
import { join } from 'node:path'
import { DIST, left, on, onFreshNode } from '../support/cnitool.ts'
import { provide } from '../support/dhcp.ts'
import { isSilent, type Namespace, ping, type Row, until } from '../support/harness.ts'
import { mappings } from '../support/host-ports.ts'
import { lackingKinds, needsKind, wireMaster } from '../support/kinds.ts'
import { sourceSeen, WORLD, wireWorld } from '../support/packets.ts'
import { addresses } from '../support/pool.ts'
import { ADMITTING, jsonFiles, LENDING, SAMPLES, type Sample } from '../support/samples.ts'
import { reach, serve } from '../support/servers.ts'

type Nodes = Record<'node' | 'pod' | 'other' | 'world', Namespace>
/** One pod of a sample's network. */
interface Attached {
  readonly pod: Namespace
  readonly result: Row
  readonly addresses: readonly string[]
  /** A verb of `plumb cni`: what it answers. */
  run(verb: string): Promise<Row>
}

describe('the samples of conf/', () => {
  it('are every file there that holds JSON', () => {
    assert.deepEqual([...SAMPLES, ...LENDING, ...ADMITTING].map(({ file }) => file).sort(), jsonFiles())
    assert.ok(SAMPLES.some(({ file }) => file.includes('/')))
  })

  for (const sample of SAMPLES) {
    it(
      `conf/${sample.file}: ADD, CHECK where CNI ${sample.cniVersion} has it, packets and DEL, by plumb cni`,
      onFreshNode(['node', 'pod', 'other', 'world'], async (all, test) => {
        for (const kind of lackingKinds(sample.plugins.map(({ type }) => type))) needsKind(test, kind)
        await wireMaster(all.node, sample.plugins)
        if (sample.type === 'loopback') return loops(sample, all)
        if (/^(tap|dummy|vlan)$/.test(sample.type)) return stands(sample, all)
        await wireWorld(all.node, all.world)
        await provide(sample, all.node)
        const [one, two] = [await attach(sample, all, all.pod, 1), await attach(sample, all, all.other, 2)]
        assert.equal(new Set([...one.addresses, ...two.addresses]).size, one.addresses.length + two.addresses.length)
        await meet(all, one, two)
        await leave(sample, all, one)
        await publish(sample, all, two)
        for (const { run } of [one, two]) await checked(sample, run)
        await one.run('del')
        for (const address of two.addresses) assert.ok(await until(() => ping(all.node, address)), address)
        await two.run('del')
        await two.run('del')
        assert.deepEqual(
          [await left(all.node, sample.name), await mappings(all.node)],
          [{ cached: [], reserved: [], ports: [] }, []],
        )
      }),
    )
  }

  for (const sample of LENDING) {
    it(
      `conf/${sample.file}: ADD, CHECK, packets and DEL of the one device that it has, by plumb cni`,
      onFreshNode(['node', 'pod', 'world'], lends(sample)),
    )
  }
})

/** A pod reaches what its device is wired to, as the node did before and does again. */
function lends(sample: Sample): (nodes: Omit<Nodes, 'other'>) => Promise<void> {
  return async ({ node, pod, world }) => {
    const device: string = sample.plugins[0]?.['device']
    await world.ip('link', 'add', 'wire', 'type', 'veth', 'peer', 'name', device, 'netns', node.path)
    await world.ip('link', 'set', 'dev', 'wire', 'up')
    await node.ip('link', 'set', 'dev', device, 'up')
    const run = caller(sample, node, pod, 1)
    const result = await run('add')
    for (const { address, gateway } of result['ips']) {
      await world.ip('addr', 'add', `${gateway}/${address.split('/')[1]}`, 'dev', 'wire', 'nodad')
      assert.ok(await until(() => ping(pod, gateway)), gateway)
    }
    for (const address of addresses(result)) assert.ok(await until(() => ping(world, address)), address)
    await checked(sample, run)
    for (const _ of [1, 2]) await run('del')
    assert.ok((await node.json('link', 'show', 'dev', device))[0]?.['flags'].includes('UP'))
    assert.deepEqual(await left(node, sample.name), { cached: [], reserved: [], ports: [] })
  }
}

async function attach(sample: Sample, { node, world }: Nodes, pod: Namespace, nth: number): Promise<Attached> {
  const run = caller(sample, node, pod, nth)
  const result = await run('add')
  assert.equal(result['cniVersion'], sample.cniVersion)
  const found = addresses(result)
  const onLink = (await pod.json('addr', 'show', 'eth0'))[0]?.['addr_info']
    .filter(({ scope }: Row) => scope === 'global')
    .map(({ local }: Row) => local)
  assert.deepEqual(found, onLink)
  // What is not masqueraded is answered all the same.
  for (const address of found)
    await world.ip('route', 'add', address, 'via', address.includes(':') ? WORLD.node6 : WORLD.node4)
  return { pod, result, addresses: found, run }
}

function caller({ dir, name, capabilities }: Sample, node: Namespace, pod: Namespace, nth: number): Attached['run'] {
  const { works } = on(node, dir, DIST, { CAP_ARGS: JSON.stringify(capabilities(nth)) })
  return async (verb) => JSON.parse(await works([verb, name, pod.path, '--json'], [join(DIST, 'plumb'), 'cni']))
}

/** Pods reach each other, their gateways and the node, and the node reaches them. */
async function meet({ node }: Nodes, one: Attached, two: Attached): Promise<void> {
  for (const address of two.addresses) assert.ok(await until(() => ping(one.pod, address)), address)
  for (const address of one.addresses)
    assert.ok((await until(() => ping(two.pod, address))) && (await until(() => ping(node, address))), address)
  const gateways = (one.result['ips'] ?? [one.result['ip4'], one.result['ip6']]).flatMap(
    (ip: Row | undefined) => ip?.['gateway'] ?? [],
  )
  assert.equal(gateways.length, one.addresses.length)
  for (const gateway of gateways) assert.ok(await until(() => ping(one.pod, gateway)), gateway)
}

/** What a pod sends out of the node has the node's address, or its own where nothing is masqueraded. */
async function leave({ plugins }: Sample, { world }: Nodes, { pod, addresses }: Attached): Promise<void> {
  const isMasqueraded = plugins[0]?.['ipMasq'] === true
  for (const address of addresses) {
    const six = address.includes(':')
    const routed = (await pod.json(six ? '-6' : '-4', 'route', 'show', 'default')).length > 0
    if (routed)
      assert.equal(
        await sourceSeen(pod, world, six ? WORLD.world6 : WORLD.world4),
        isMasqueraded ? (six ? WORLD.node6 : WORLD.node4) : address,
      )
  }
}

/** The pod's host port leads to it, from outside and on the node itself, and is gone with it. */
async function publish({ capabilities }: Sample, { node, world }: Nodes, { pod, addresses }: Attached): Promise<void> {
  const { portMappings: [port] = [] } = capabilities(2)
  if (!port) return
  await serve(pod, 'web', 'tcp 80')
  for (const address of addresses) {
    const [at, client] = address.includes(':') ? [WORLD.node6, WORLD.world6] : [WORLD.node4, WORLD.world4]
    assert.equal(await reach(world, at, port.hostPort), `web ${client}`)
    assert.match(await reach(node, at, port.hostPort), /^web /)
  }
}

async function checked({ cniVersion }: Sample, run: Attached['run']): Promise<void> {
  if (cniVersion >= '0.4.0') assert.deepEqual(await run('check'), { checked: true })
  else await assert.rejects(run('check'), /config version does not allow CHECK/)
}

/** What leads nowhere by itself answers in its own pod; a single VLAN leads to its gateway. */
async function stands(sample: Sample, { node, pod }: Nodes): Promise<void> {
  await pod.ip('link', 'set', 'lo', 'up')
  const run = caller(sample, node, pod, 1)
  const result = await run('add')
  for (const address of [...addresses(result), ...result['ips'].flatMap(({ gateway }: Row) => gateway ?? [])])
    assert.ok(await ping(pod, address), address)
  await checked(sample, run)
  for (const _ of [1, 2]) await run('del')
  assert.deepEqual(
    (await pod.json('link')).map(({ ifname }) => ifname),
    ['lo'],
  )
}

async function loops(sample: Sample, { node, pod }: Nodes): Promise<void> {
  const run = caller(sample, node, pod, 1)
  assert.ok(await isSilent(pod, '127.0.0.1'))
  assert.deepEqual(addresses(await run('add')), ['127.0.0.1', '::1'])
  for (const address of ['127.0.0.1', '::1']) assert.ok(await ping(pod, address), address)
  await checked(sample, run)
  await run('del')
  assert.ok(await isSilent(pod, '127.0.0.1'))
}
