import assert from 'node:assert/strict'
import { connections, forgetAddresses } from '../../lib/os/conntrack.ts'
import { inside } from '../../lib/os/netns.ts'
import type { Ip } from '../../lib/text/ip.ts'
import type { Namespace } from './harness.ts'

// Each client sends to each server, of one family.
const HOSTS = {
  4: { clients: ['127.0.0.2', '127.0.0.3'], servers: ['127.0.0.8', '127.0.0.9'] },
  6: { clients: ['fd00::2', 'fd00::3'], servers: ['fd00::8', 'fd00::9'] },
} as const
const SEND = `const [clients, servers] = process.argv.slice(-2).map((all) => all.split(','))
for (const hostname of clients)
  for (const to of servers) {
    const one = await Bun.udpSocket({ hostname })
    one.send('x', 53, to)
    one.close()
  }
process.exit(0)`

/**
 * `forgetAddresses` of a client and of a server of each family. Newer kernels delete IPv4 connections by a filter,
 * older ones one by one, and both must leave the same ones.
 */
export async function forgetsThoseOfAnAddress({ node }: { node: Namespace }): Promise<void> {
  await node.ip('link', 'set', 'lo', 'up')
  for (const ip of [...HOSTS[6].clients, ...HOSTS[6].servers]) await node.ip('addr', 'add', ip, 'dev', 'lo', 'nodad')
  const ruleset = 'table inet track { chain input { type filter hook input priority 0; ct state new accept; }; }'
  assert.equal((await node.exec(['nft', '-f', '-'], { stdin: ruleset })).status, 0)
  for (const { clients, servers } of Object.values(HOSTS)) {
    const { status, stderr } = await node.exec([Bun.argv[0] as string, '-e', SEND, clients.join(), servers.join()])
    assert.equal(status, 0, stderr)
  }
  inside(node.path as never, () => {
    const all = () =>
      connections({ protocol: 17 })
        .map(({ there }) => `${there.src} > ${there.dst}`)
        .sort()
    const named = (ips: readonly string[]) => (one: string) => ips.some((ip) => one.split(' > ').includes(ip))
    let left = Object.values(HOSTS)
      .flatMap(({ clients, servers }) => clients.flatMap((client) => servers.map((server) => `${client} > ${server}`)))
      .sort()
    assert.deepEqual(all(), left)
    for (const ips of [['127.0.0.7'], ['127.0.0.9'], ['127.0.0.2', 'fd00::8'], ['fd00::3']]) {
      forgetAddresses(ips as Ip[])
      left = left.filter((one) => !named(ips)(one))
      assert.deepEqual(all(), left)
    }
    assert.deepEqual(left, ['127.0.0.3 > 127.0.0.8', 'fd00::2 > fd00::9'])
  })
}
