import assert from 'node:assert/strict'
import { execa } from 'execa'
import type { Namespace, Row } from './harness.ts'
import { bridgeConf, type Conf, containerId, type Network, network } from './network.ts'

/** The configuration of a bridge of its own on `br0` with both families, which `conf` comes after in a list. */
export function bridgeBefore(conf: Conf, keys: object = {}): Conf {
  const ranges = [[{ subnet: '10.1.0.0/24' }], [{ subnet: 'fd00:1::/64' }]]
  return {
    ...bridgeConf({ isDefaultGateway: true, ...keys }),
    cniVersion: conf['cniVersion'],
    name: conf.name,
    ipam: { type: 'host-local', ranges },
  }
}

/**
 * The same as `network` gives, of a list of another plugin and then this one: every verb of both, in the order of a
 * runtime.
 */
export function chainedNetwork(node: Namespace, conf: Conf, first: Conf = bridgeBefore(conf)): Network {
  const [before, own] = [network(node, first), network(node, conf)]
  const made = new Map<string, Row>()
  return {
    conf,
    async add(pod, more) {
      // The kernel's own link-local addresses, tentative for a second or two, would be one more thing to wait for.
      await node.exec(['sh', '-c', 'echo 0 >/proc/sys/net/ipv6/conf/default/accept_dad'])
      const prevResult = made.get(containerId(pod)) ?? (await before.add(pod))
      made.set(containerId(pod), prevResult)
      return own.add(pod, { conf: { ...conf, prevResult }, ...more })
    },
    check: own.check,
    async del(pod, more = {}) {
      await own.del(pod, more)
      const { conf: _, ...where } = more
      await before.del(pod, where)
      made.delete(containerId(pod))
    },
    async gc(...keep) {
      await own.gc(...keep)
      await before.gc(...keep)
      for (const id of [...made.keys()]) if (!keep.some((pod) => containerId(pod) === id)) made.delete(id)
    },
    fails: (command, pod, more) =>
      own.fails(command, pod, {
        ...more,
        conf: { prevResult: { ips: [{ address: '10.1.0.9/24' }] }, ...(more?.conf as object) },
      }),
  }
}

/**
 * What lies behind a node whose FORWARD chain lets nothing through: made once for it, gone with the process's
 * namespaces.
 */
export async function shutNode(node: Namespace): Promise<void> {
  if (shut.has(node.path)) return
  shut.add(node.path)
  const world = `world-${node.path.slice(node.path.lastIndexOf('/') + 1)}`
  await execa('ip', ['netns', 'add', world])
  const script = `
for six in '' 6; do ip\${six}tables -P FORWARD DROP; done
echo 0 >/proc/sys/net/ipv6/conf/default/accept_dad
ip link add up0 type veth peer name up0 netns ${world}
ip addr add 192.0.2.1/24 dev up0; ip addr add 2001:db8::1/64 dev up0 nodad; ip link set up0 up
ip -n ${world} addr add 192.0.2.2/24 dev up0; ip -n ${world} addr add 2001:db8::2/64 dev up0 nodad
ip -n ${world} link set lo up; ip -n ${world} link set up0 up
ip -n ${world} route add 10.0.0.0/8 via 192.0.2.1; ip -n ${world} route add fd00::/16 via 2001:db8::1`
  const { status, stderr } = await node.exec(['sh', '-ec', script])
  assert.equal(status, 0, stderr)
}
const shut = new Set<string>()
after(async () => {
  for (const path of shut)
    await execa('ip', ['netns', 'delete', `world-${path.slice(path.lastIndexOf('/') + 1)}`], { reject: false })
})
