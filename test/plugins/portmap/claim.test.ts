// lane: netns
// Tests plugins/portmap.ts and lib/nft.
import assert from 'node:assert/strict'
import { rmSync, symlinkSync } from 'node:fs'
import { execa } from 'execa'
import { inNamespaces, type Namespace } from '../../support/harness.ts'
import { mappings, type Port, portNetwork, works } from '../../support/host-ports.ts'
import { claims, noted, ports, rewrite } from '../../support/journal.ts'
import { containerId } from '../../support/network.ts'
import { reach, serve } from '../../support/servers.ts'

const PORT: Port = { hostPort: 8080, containerPort: 80 }
const MANY = Array.from({ length: 24 }, (_, i) => `pod${i}`)
const NODE = '10.1.0.1'

describe('portmap: whose port it is', () => {
  const conflicts: Record<string, readonly [Port, Port]> = {
    'the same port': [PORT, PORT],
    'an address of it': [PORT, { ...PORT, hostIP: NODE }],
    'all addresses of it': [{ ...PORT, hostIP: NODE }, PORT],
    'all addresses of its family': [
      { ...PORT, hostIP: 'fd00:1::1' },
      { ...PORT, hostIP: '::' },
    ],
    'a port within its range': [
      { hostPort: 8078, containerPort: 80, range: 5 },
      { ...PORT, protocol: 'TCP' },
    ],
  }
  for (const [what, [first, second]] of Object.entries(conflicts)) {
    it(
      `${what}: refused with the first owner's name, and nothing of the second is left`,
      inNamespaces(['node', 'pod', 'other'], async ({ node, pod, other }) => {
        const net = portNetwork(node)
        await net.add(pod, [first])
        const prevResult = await net.add(other, [])
        const [before, had] = [await mappings(node), claims()]
        const { error } = await net.call('ADD', other, {
          prevResult,
          runtimeConfig: { portMappings: [{ hostPort: 7000, containerPort: 1 }, second] },
        })
        assert.deepEqual(
          [error.code, error.msg],
          [7, `Cannot give host port 8080/tcp to this container: container ${containerId(pod)} has it`],
        )
        assert.equal(
          error.details,
          `it is mapped to eth0 of network ${net.conf.name}; want another hostPort, or another hostIP`,
        )
        assert.deepEqual([await mappings(node), claims()], [before, had])
        assert.deepEqual(noted('portmap'), [containerId(pod)])
        // The first one's DEL makes room.
        await net.del(pod)
        works(await net.call('ADD', other, { prevResult, runtimeConfig: { portMappings: [second] } }))
      }),
    )
  }

  it(
    'no conflict: another protocol, another address, the other family',
    inNamespaces(['node', 'pod', 'other'], async ({ node, pod, other }) => {
      const net = portNetwork(node)
      await net.add(
        pod,
        [{ ...PORT, hostIP: NODE }, { hostPort: 8081, containerPort: 80, hostIP: '0.0.0.0' }, PORT].slice(0, 2),
      )
      await net.add(other, [
        { ...PORT, protocol: 'udp' },
        { ...PORT, hostIP: '192.0.2.1' },
        { ...PORT, hostIP: '::' },
        { hostPort: 8081, containerPort: 80, hostIP: 'fd00:1::1' },
      ])
      assert.deepEqual(await mappings(node), [
        '10.1.0.1 . tcp . 8080 10.1.0.2 . 80',
        '192.0.2.1 . tcp . 8080 10.1.0.3 . 80',
        'fd00:1::1 . tcp . 8081 fd00:1::3 . 80',
        'tcp . 8080 fd00:1::3 . 80',
        'tcp . 8081 10.1.0.2 . 80',
        'udp . 8080 10.1.0.3 . 80',
        'udp . 8080 fd00:1::3 . 80',
      ])
    }),
  )

  it(
    'an address of its own goes before all of them, within one container',
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      await portNetwork(node).add(pod, [PORT, { hostPort: 8080, containerPort: 81, hostIP: NODE }])
      await serve(pod, 'all', 'tcp 80')
      await serve(pod, 'own', 'tcp 81')
      await node.ip('addr', 'add', '192.0.2.1/32', 'dev', 'br0')
      assert.match(await reach(node, NODE, 8080), /^own /)
      assert.match(await reach(node, '192.0.2.1', 8080), /^all /)
    }),
  )

  it(
    'an owner whose namespace is gone does not keep its ports when another pod has the path of the namespace',
    inNamespaces(['node', 'pod', 'other', 'third'], async ({ node, pod, other, third }) => {
      const net = portNetwork(node)
      const path = `/run/path-of-${containerId(pod)}`
      const lead = (to: Namespace) => rmSync(path, { force: true }) ?? symlinkSync(to.path, path)
      lead(pod)
      await net.add(pod, [PORT], { netns: path })
      const prevResult = await net.add(third, [])
      const ask = () => net.call('ADD', third, { prevResult, runtimeConfig: { portMappings: [PORT] } })
      assert.equal((await ask()).error.code, 7)
      await node.exec(['ip', 'netns', 'delete', pod.path.slice('/run/netns/'.length)])
      lead(other)
      works(await ask())
      assert.deepEqual(noted('portmap'), [containerId(third)])
      await net.del(third)
      assert.deepEqual([await mappings(node), ports()], [[], []])
    }),
  )

  it(
    'an owner whose entry is gone, or whose namespace is gone without a DEL, does not keep its ports',
    inNamespaces(['node', 'pod', 'other', 'third'], async ({ node, pod, other, third }) => {
      const net = portNetwork(node)
      await net.add(pod, [PORT, { hostPort: 9000, containerPort: 80 }])
      rewrite(containerId(pod), () => undefined)
      await net.add(other, [PORT, { hostPort: 9000, containerPort: 81, hostIP: '0.0.0.0' }])
      assert.deepEqual(await mappings(node), [
        'tcp . 8080 10.1.0.3 . 80',
        'tcp . 8080 fd00:1::3 . 80',
        'tcp . 9000 10.1.0.3 . 81',
        'tcp . 9000 fd00:1::2 . 80',
      ])
      await execa('ip', ['netns', 'delete', containerId(other)])
      await net.add(third, [PORT])
      // All that it had is gone with it, not only what was asked for.
      assert.deepEqual(await mappings(node), [
        'tcp . 8080 10.1.0.4 . 80',
        'tcp . 8080 fd00:1::4 . 80',
        'tcp . 9000 fd00:1::2 . 80',
      ])
      await serve(third, 'third', 'tcp 80')
      assert.match(await reach(node, NODE, 8080), /^third /)
      // Its late DEL leaves the new owner alone.
      works(await net.call('DEL', other))
      assert.match(await reach(node, NODE, 8080), /^third /)
    }),
  )

  it(
    '24 ADDs at once for one port: exactly one wins, and the others say who; their DELs leave it alone',
    inNamespaces(['node', ...MANY], async (all, test) => {
      test.timeout(60_000)
      const { node, ...rest } = all as Record<string, Namespace> as { node: Namespace }
      const pods = Object.values(rest) as Namespace[]
      const net = portNetwork(node)
      const address = (i: number) => `10.1.0.${i + 2}`
      const ask = (pod: Namespace, i: number) =>
        net.call('ADD', pod, {
          prevResult: { ips: [{ address: `${address(i)}/24` }, { address: `fd00:1::${i + 2}/64` }] },
          runtimeConfig: { portMappings: [PORT, { hostPort: 9000 + i, containerPort: 80 }] },
        })
      const answers = await Promise.all(pods.map(ask))
      const won = answers.findIndex(({ status }) => status === 0)
      assert.equal(
        answers.filter(({ status }) => status === 0).length,
        1,
        answers.map(({ stdout }) => stdout).join('\n'),
      )
      const mine = [
        `tcp . 8080 ${address(won)} . 80`,
        `tcp . 8080 fd00:1::${won + 2} . 80`,
        `tcp . ${9000 + won} ${address(won)} . 80`,
        `tcp . ${9000 + won} fd00:1::${won + 2} . 80`,
      ]
      assert.deepEqual(await mappings(node), mine)
      for (const [i, { error }] of answers.entries())
        if (i !== won) assert.match(error.msg, new RegExp(`container ${containerId(pods[won] as Namespace)} has it$`))
      await Promise.all(pods.map(async (pod, i) => i === won || works(await net.call('DEL', pod))))
      assert.deepEqual(await mappings(node), mine)
      works(await net.call('DEL', pods[won]))
      assert.deepEqual([await mappings(node), ports(), noted('portmap')], [[], [], []])
    }),
  )

  it(
    '24 ADDs and 24 DELs at once, of a port each: no failure, nothing left',
    inNamespaces(['node', ...MANY], async (all, test) => {
      test.timeout(60_000)
      const { node, ...rest } = all as Record<string, Namespace> as { node: Namespace }
      const pods = Object.values(rest) as Namespace[]
      const net = portNetwork(node)
      const call = (command: string, pod: Namespace, i: number) =>
        net.call(command, pod, {
          prevResult: { ips: [{ address: `10.1.0.${i + 2}/24` }] },
          runtimeConfig: { portMappings: [{ hostPort: 8000 + i, containerPort: 80 }] },
        })
      const twice = async (pod: Namespace, i: number) => {
        for (const command of ['ADD', 'DEL', 'ADD']) works(await call(command, pod, i))
      }
      await Promise.all(pods.map(twice))
      assert.equal((await mappings(node)).length, 24)
      await Promise.all(pods.map(async (pod, i) => works(await call('DEL', pod, i))))
      assert.deepEqual([await mappings(node), ports()], [[], []])
    }),
  )
})
