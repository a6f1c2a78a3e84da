import assert from 'node:assert/strict'
import { type Containerd, onContainerd } from '../containerd.ts'
import { type Namespace, type Row, until } from '../harness.ts'
import { remains } from '../remainder.ts'
import { tapped } from '../tap.ts'

const TYPES = ['loopback', 'bridge', 'portmap']
const WEB = {
  ports: [
    { host: 8080, container: 80 },
    { host: 5353, container: 53, protocol: 'udp' },
  ],
} as const

describe('containerd, when things go wrong', () => {
  it('sends keys in capitals, calls loopback beside the list, and the second stop is a DEL with neither namespace nor result', async function () {
    const tap = tapped(TYPES)
    await onContainerd({ conf: network(), bin: tap.bin }, async ({ node, containerd }) => {
      const { id } = await containerd.run('web', WEB)
      const added = new Map(tap.calls().map(({ type, conf }) => [type, conf]))
      assert.deepEqual([...added].map(([type, conf]) => `${type} ${conf['cniVersion']}`).sort(), ['bridge 1.0.0', 'loopback 0.3.1', 'portmap 1.0.0'])
      assert.deepEqual(added.get('portmap')?.['runtimeConfig'].portMappings, [
        { HostPort: 8080, ContainerPort: 80, Protocol: 'tcp', HostIP: '' },
        { HostPort: 5353, ContainerPort: 53, Protocol: 'udp', HostIP: '' },
      ])
      for (let i = 0; i < 2; i++) await containerd.stop(id)
      const bare = tap.calls().filter(({ command, netns, conf }) => command === 'DEL' && netns === '' && !conf['prevResult'])
      assert.deepEqual(bare.map(({ type }) => type).sort(), [...TYPES].sort())
      await containerd.remove(id)
      assert.deepEqual([await containerd.list(), await remains(node)], [[], []])
    }).call(this)
  })

  it(
    'the namespace removed by hand, then stop, stop and remove: nothing left, and the same ports go to the next pod',
    onContainerd({ conf: network() }, async ({ node, containerd }) => {
      const { id, ns } = await containerd.run('web', WEB)
      // Its container holds the namespace itself, as after an `ip netns delete` on a node.
      await node.exec(['ip', 'netns', 'delete', ns.path.replace('/run/netns/', '')])
      for (let i = 0; i < 2; i++) await containerd.stop(id)
      await containerd.remove(id)
      assert.deepEqual(await remains(node), [])
      await comesAndGoes(containerd, node)
    }),
  )

  it(
    'a bad configuration: the pod is refused with the key that is wrong, nothing stays, and the next one works',
    onContainerd({ conf: network({ ranges: [[{ subnet: '10.9.0.0/24', rangeStart: '10.8.0.1' }]] }) }, async ({ node, containerd }) => {
      for (let i = 0; i < 2; i++) await assert.rejects(containerd.run('web', WEB), /ipam\.ranges\[0\]\[0\]\.rangeStart "10\.8\.0\.1"/)
      await goneAll(containerd)
      assert.deepEqual(await remains(node), [])
      await containerd.configure(network())
      await comesAndGoes(containerd, node)
    }),
  )

  it(
    'a configuration that turns bad under a pod: it is removed all the same',
    onContainerd({ conf: network() }, async ({ node, containerd }) => {
      const { id } = await containerd.run('web', WEB)
      await containerd.configure(network({ ranges: [[{ subnet: '10.9.0.0/24', rangeStart: '10.8.0.1' }]] }))
      await containerd.stop(id)
      await containerd.remove(id)
      assert.deepEqual(await remains(node), [])
    }),
  )

  it(
    'a pool without another address: the pod is refused and says so, and gets the address when it is free',
    onContainerd({ conf: network({ ranges: [[{ subnet: '10.9.0.0/24', rangeStart: '10.9.0.9', rangeEnd: '10.9.0.9' }]] }) }, async ({ node, containerd }) => {
      const first = await containerd.run('first')
      await assert.rejects(containerd.run('second', WEB), /10\.9\.0\.9/)
      assert.deepEqual(await containerd.list(), [first.id])
      await containerd.stop(first.id)
      const second = await containerd.run('second', WEB)
      assert.deepEqual(second.ips, ['10.9.0.9'])
      await goneAll(containerd)
      assert.deepEqual(await remains(node), [])
    }),
  )

  it(
    'a host port that another pod has: the error that the CRI returns names the owner, whose port stays, and is free after it',
    onContainerd({ conf: network() }, async ({ node, containerd }) => {
      const owner = await containerd.run('owner', WEB)
      await assert.rejects(containerd.run('late', WEB), new RegExp(`host port 8080/tcp .*${owner.id} has it`))
      assert.deepEqual(await containerd.list(), [owner.id])
      assert.equal((await remains(node)).filter((one) => one.startsWith('tcp . 8080')).length, 2)
      await goneAll(containerd)
      assert.deepEqual(await remains(node), [])
      await comesAndGoes(containerd, node)
    }),
  )

  for (const [type, when] of [
    ['loopback', 'before'],
    ['bridge', 'before'],
    ['bridge', 'after'],
    ['portmap', 'before'],
    ['portmap', 'after'],
  ] as const)
    it(`SIGKILL in the middle of RunPodSandbox, ${when} ${type}, whose ADD goes on alone: after a restart the sandbox is removed and nothing stays`, async function () {
      const tap = tapped(TYPES)
      await onContainerd({ conf: network(), bin: tap.bin }, async ({ node, containerd }) => {
        const held = tap.hold(type, 'ADD', when)
        const running = assert.rejects(containerd.run('web', WEB))
        await held.reached()
        await containerd.kill()
        await running
        await held.release()
        await containerd.start()
        assert.equal((await containerd.list()).length, 1)
        await goneAll(containerd)
        assert.deepEqual(await remains(node), [])
        await comesAndGoes(containerd, node)
      }).call(this)
    })

  it('an ADD that begins when its sandbox has been removed, after SIGKILL and a restart, is refused and leaves nothing', async function () {
    const tap = tapped(TYPES)
    await onContainerd({ conf: network(), bin: tap.bin }, async ({ node, containerd }) => {
      const held = tap.hold('bridge', 'ADD', 'before')
      const running = assert.rejects(containerd.run('web', WEB))
      await held.reached()
      await containerd.kill()
      await running
      await containerd.start()
      await goneAll(containerd)
      await held.release()
      assert.deepEqual(await remains(node), [])
      await comesAndGoes(containerd, node)
    }).call(this)
  })
})

/** The network of these tests, with these keys in its pool. */
function network(pool: Row = { ranges: [[{ subnet: '10.9.0.0/24' }], [{ subnet: 'fd00:9::/64' }]] }): Row {
  const bridge = { type: 'bridge', bridge: 'plumb0', isDefaultGateway: true, ipMasq: true, hairpinMode: true, ipam: { type: 'host-local', ...pool } }
  return { cniVersion: '1.0.0', name: 'faults', plugins: [bridge, { type: 'portmap', snat: true, capabilities: { portMappings: true } }] }
}

/** Another pod with the same ports. */
async function comesAndGoes(containerd: Containerd, node: Namespace): Promise<void> {
  assert.deepEqual((await containerd.run('next', WEB)).ips.length, 2)
  await goneAll(containerd)
  assert.deepEqual(await remains(node), [])
}

/** Every sandbox that containerd knows of is stopped and removed. */
async function goneAll(containerd: Containerd): Promise<void> {
  for (const id of await containerd.list()) for (const call of [containerd.stop, containerd.remove]) await call(id)
  assert.deepEqual(await until(async () => ({ left: await containerd.list() })), { left: [] })
}
