import assert from 'node:assert/strict'
import { join } from 'node:path'
import { needsVrf } from '../chained.ts'
import { type Namespace, ping, type Row, until } from '../harness.ts'
import { mappings } from '../hostports.ts'
import { sourceSeen, WORLD, wireWorld } from '../packets.ts'
import { DIST, left, on, onFreshNode } from '../peers/tool.ts'
import { addresses } from '../pool.ts'
import { jsonFiles, SAMPLES, type Sample } from '../samples.ts'
import { reach, serve } from '../servers.ts'

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
    assert.deepEqual(
      SAMPLES.map(({ file }) => file),
      jsonFiles(),
    )
    assert.ok(SAMPLES.some(({ file }) => file.includes('/')))
  })

  for (const sample of SAMPLES) {
    it(
      `conf/${sample.file}: ADD, CHECK where CNI ${sample.cniVersion} has it, packets and DEL, by plumb cni`,
      onFreshNode(['node', 'pod', 'other', 'world'], async (all, test) => {
        needsVrf(
          test,
          sample.plugins.map(({ type }) => type),
        )
        if (sample.type === 'loopback') return loops(sample, all)
        await wireWorld(all.node, all.world)
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
        assert.deepEqual([await left(all.node, sample.name), await mappings(all.node)], [{ cached: [], reserved: [], ports: [] }, []])
      }),
    )
  }
})

async function attach(sample: Sample, { node, world }: Nodes, pod: Namespace, nth: number): Promise<Attached> {
  const run = caller(sample, node, pod, nth)
  const result = await run('add')
  assert.equal(result['cniVersion'], sample.cniVersion)
  const found = addresses(result)
  const onLink = (await pod.json('addr', 'show', 'eth0'))[0]?.['addr_info'].filter(({ scope }: Row) => scope === 'global').map(({ local }: Row) => local)
  assert.deepEqual(found, onLink)
  // What is not masqueraded is answered all the same.
  for (const address of found) await world.ip('route', 'add', address, 'via', address.includes(':') ? WORLD.node6 : WORLD.node4)
  return { pod, result, addresses: found, run }
}

function caller({ dir, name, capabilities }: Sample, node: Namespace, pod: Namespace, nth: number): Attached['run'] {
  const { works } = on(node, dir, DIST, { CAP_ARGS: JSON.stringify(capabilities(nth)) })
  return async (verb) => JSON.parse(await works([verb, name, pod.path, '--json'], [join(DIST, 'plumb'), 'cni']))
}

/** Pods reach each other, their gateways and the node, and the node reaches them. */
async function meet({ node }: Nodes, one: Attached, two: Attached): Promise<void> {
  for (const address of two.addresses) assert.ok(await until(() => ping(one.pod, address)), address)
  for (const address of one.addresses) assert.ok((await until(() => ping(two.pod, address))) && (await until(() => ping(node, address))), address)
  const gateways = (one.result['ips'] ?? [one.result['ip4'], one.result['ip6']]).flatMap((ip: Row | undefined) => ip?.['gateway'] ?? [])
  assert.equal(gateways.length, one.addresses.length)
  for (const gateway of gateways) assert.ok(await until(() => ping(one.pod, gateway)), gateway)
}

/** What a pod sends out of the node has the node's address, or its own where nothing is masqueraded. */
async function leave({ plugins }: Sample, { world }: Nodes, { pod, addresses }: Attached): Promise<void> {
  const isMasqueraded = plugins[0]?.['ipMasq'] === true
  for (const address of addresses) {
    const six = address.includes(':')
    const routed = (await pod.json(six ? '-6' : '-4', 'route', 'show', 'default')).length > 0
    if (routed) assert.equal(await sourceSeen(pod, world, six ? WORLD.world6 : WORLD.world4), isMasqueraded ? (six ? WORLD.node6 : WORLD.node4) : address)
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

async function loops(sample: Sample, { node, pod }: Nodes): Promise<void> {
  const run = caller(sample, node, pod, 1)
  assert.equal(await ping(pod, '127.0.0.1'), false)
  assert.deepEqual(addresses(await run('add')), ['127.0.0.1', '::1'])
  for (const address of ['127.0.0.1', '::1']) assert.ok(await ping(pod, address), address)
  await checked(sample, run)
  await run('del')
  assert.equal(await ping(pod, '127.0.0.1'), false)
}
