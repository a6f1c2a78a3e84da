// lane: peers
// Tests plugins, called by containerd.
import assert from 'node:assert/strict'
import { tapped } from '../../support/call-log.ts'
import { remains } from '../../support/container-leftovers.ts'
import { onContainerd, VERSIONS } from '../../support/containerd.ts'
import { leavesNothing, network, TYPES, WEB } from './web.ts'

/** A pool that cannot be read, and what is said of it. */
const BAD = {
  pool: { ranges: [[{ subnet: '10.9.0.0/24', rangeStart: '10.8.0.1' }]] },
  words: /ipam\.ranges\[0\]\[0\]\.rangeStart "10\.8\.0\.1": want an address in 10\.9\.0\.0\/24/,
}
const ONE_ADDRESS = { ranges: [[{ subnet: '10.9.0.0/24', rangeStart: '10.9.0.9', rangeEnd: '10.9.0.9' }]] }

for (const version of VERSIONS)
  describe(`containerd ${version}, when things go wrong`, () => {
    it('sends keys in capitals, and at a second stop a DEL with neither namespace nor result', async function () {
      const tap = tapped(TYPES)
      await onContainerd({ conf: network(), bin: tap.bin, version }, async ({ node, containerd }) => {
        const { id } = await containerd.run('web', WEB)
        const added = new Map(tap.calls().map(({ type, conf }) => [type, conf]))
        assert.deepEqual([...added.keys()].sort(), [...TYPES].sort())
        assert.deepEqual(added.get('portmap')?.['runtimeConfig'].portMappings, [
          { HostPort: 8080, ContainerPort: 80, Protocol: 'tcp', HostIP: '' },
          { HostPort: 5353, ContainerPort: 53, Protocol: 'udp', HostIP: '' },
        ])
        for (let i = 0; i < 2; i++) await containerd.stop(id)
        const bare = tap
          .calls()
          .filter(({ command, netns, conf }) => command === 'DEL' && netns === '' && !conf['prevResult'])
        assert.deepEqual(bare.map(({ type }) => type).sort(), [...TYPES].sort())
        await leavesNothing(containerd, node)
      }).call(this)
    })

    it(
      'the namespace removed by hand, then stop, stop and remove: nothing left',
      onContainerd({ conf: network(), version }, async ({ node, containerd }) => {
        const { ns } = await containerd.run('web', WEB)
        await node.exec(['ip', 'netns', 'delete', ns.path.replace('/run/netns/', '')])
        await leavesNothing(containerd, node)
      }),
    )

    it(
      'a bad configuration: the pod is refused with the key that is wrong, nothing stays, and the next one works',
      onContainerd({ conf: network(BAD.pool), version }, async ({ node, containerd }) => {
        for (let i = 0; i < 2; i++) await assert.rejects(containerd.run('web', WEB), BAD.words)
        assert.deepEqual([await containerd.list(), await remains(node, 'up0')], [[], []])
        await containerd.configure(network())
        await leavesNothing(containerd, node)
      }),
    )

    it(
      'a configuration that turns bad under a pod: it is removed all the same',
      onContainerd({ conf: network(), version }, async ({ node, containerd }) => {
        const { id } = await containerd.run('web', WEB)
        await containerd.configure(network(BAD.pool))
        await containerd.away(id)
        assert.deepEqual([await containerd.list(), await remains(node, 'up0')], [[], []])
      }),
    )

    it(
      'a pool without another address: the pod is refused and says so, and gets the address when it is free',
      onContainerd({ conf: network(ONE_ADDRESS), version }, async ({ node, containerd }) => {
        const first = await containerd.run('first')
        await assert.rejects(containerd.run('second', WEB), /10\.9\.0\.9/)
        assert.deepEqual(await containerd.list(), [first.id])
        await containerd.stop(first.id)
        assert.deepEqual((await containerd.run('second', WEB)).ips, ['10.9.0.9'])
        await leavesNothing(containerd, node)
      }),
    )

    it(
      'a host port that another pod has: the error that the CRI returns names the owner, whose port stays, and is free after it',
      onContainerd({ conf: network(), version }, async ({ node, containerd }) => {
        const owner = await containerd.run('owner', WEB)
        await assert.rejects(
          containerd.run('late', WEB),
          new RegExp(`host port 8080/tcp .*container ${owner.id} has it`),
        )
        assert.deepEqual(await containerd.list(), [owner.id])
        assert.equal((await remains(node, 'up0')).filter((one) => /^ports[46] .*8080/.test(one)).length, 2)
        await leavesNothing(containerd, node)
      }),
    )
  })
