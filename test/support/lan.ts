import assert from 'node:assert/strict'
import { mkdtempSync } from 'node:fs'
import { inNamespaces, type Namespace, type Row } from './harness.ts'
import { type Conf, containerId, type Network, traces } from './network.ts'

/** What the LAN's own router has: the pods' gateways. */
export const ROUTER = { four: '10.1.0.1', six: 'fd00:1::1' } as const
const DEFAULTS = [{ dst: '0.0.0.0/0' }, { dst: '::/0' }]
let serial = 0

/** A LAN of a node: its link `eth1` (mtu 1450), with a router behind it that the node has itself, on `lan0`. */
export async function wireLan(node: Namespace): Promise<void> {
  const script = `
echo 0 >/proc/sys/net/ipv6/conf/default/accept_dad
ip link add eth1 mtu 1450 type veth peer name lan0 mtu 1450
for dev in lo eth1 lan0; do ip link set $dev up; done
ip addr add ${ROUTER.four}/24 dev lan0
ip addr add ${ROUTER.six}/64 dev lan0 nodad
# The kernel makes the route to its own address a little later.
for _ in $(seq 500); do
  ip -6 route show table local | grep -q '^local ${ROUTER.six} ' && break
  sleep 0.02
done`
  const { status, stderr } = await node.exec(['sh', '-ec', script])
  if (status !== 0) throw new Error(`Cannot wire the LAN: ${stderr}`)
}

/**
 * A configuration of a plugin whose pods are on that LAN, with addresses of both families; further keys as given
 * (undefined removes one).
 */
export function lanConf(type: string, keys: object = {}): Conf {
  const ranges = [[{ subnet: '10.1.0.0/24' }], [{ subnet: 'fd00:1::/64' }]]
  return {
    cniVersion: '1.1.0',
    name: `lan${++serial}`,
    type,
    ipam: { type: 'host-local', dataDir: mkdtempSync('/run/ipam-'), ranges, routes: DEFAULTS },
    ...keys,
  }
}

/** The links of a pod but lo, as `ip -d -j addr` shows them. */
export async function linksOf(pod: Namespace): Promise<Row[]> {
  return (await pod.json('addr')).filter(({ ifname }) => ifname !== 'lo')
}

/** The alias that marks a pod's link as its own. */
export function aliasOf(pod: Namespace, { name }: Conf, ifname = 'eth0'): string {
  return `plumb/${name}/${containerId(pod)}/${ifname}`
}

/** A test on a node with that LAN. */
export function onLan<N extends string>(
  pods: readonly N[],
  work: (all: Record<N | 'node', Namespace>, test: Mocha.Context) => Promise<void>,
): (this: Mocha.Context) => Promise<void> {
  return inNamespaces(['node', ...pods], async (all, test) => {
    await wireLan(all.node)
    await work(all, test)
  })
}

/**
 * ADD is refused with code 7 and these words for each of these keys, leaves nothing on disk, and the DEL that follows
 * works.
 */
export async function refusing(
  { conf, fails, del }: Network,
  pod: Namespace,
  cases: readonly (readonly [keys: object, words: RegExp])[],
): Promise<void> {
  for (const [keys, words] of cases) {
    const { code, msg } = await fails('ADD', pod, { conf: { ...conf, ...keys } })
    assert.match(msg, words)
    assert.deepEqual([code, traces(pod, conf)], [7, []], msg)
    await del(pod, { conf: { ...conf, ...keys } })
  }
}
