// lane: netns
// Tests cli/doctor/suspects.ts.
import assert from 'node:assert/strict'
import type { Scope } from '../../../cli/doctor/suspects/suspect.ts'
import { readSuspects } from '../../../cli/doctor/suspects.ts'
import type { Ip } from '../../../lib/text/ip.ts'
import type { NetnsPath } from '../../../lib/text/values.ts'
import type { Namespace } from '../../support/harness.ts'
import { onNodeWithPods, sh } from '../../support/traces.ts'

const [A, B, A6] = ['10.1.0.2', '10.1.0.3', 'fd01::2'] as Ip[] as [Ip, Ip, Ip]
const MAC = '02:00:00:00:00:99'
const table = (family: string, hook: string, rule: string) =>
  `echo 'table ${family} t { chain c { type filter hook ${hook} priority 0; ${rule}; }; }' | nft -f -`

/** What stands on the way in the node, and how it is named. */
const ON_NODE: readonly (readonly [make: string, says: RegExp])[] = [
  ['ip link set va down', /^the link va is down$/],
  ['ip link set br0 mtu 1400', /^the link br0 has an MTU of 1400 bytes, less than 1500$/],
  [`ip addr add ${A}/32 dev lo`, /^the link lo of this node has the address 10\.1\.0\.2$/],
  [
    table('inet', 'forward', `ip saddr ${A} drop`),
    /^the rule "ip saddr 10\.1\.0\.2 drop" in the chain inet t c at hook forward$/,
  ],
  [table('bridge', 'forward', 'ether type ip drop'), /^the rule "ether type ip drop" in the chain bridge t c/],
  [table('inet', 'prerouting', `ip daddr 10.1.0.0/16 notrack`), /"ip daddr 10\.1\.0\.0\/16 notrack"/],
  [
    `iptables-legacy -I FORWARD -s ${A} -j DROP`,
    /^the rule "-A FORWARD -s 10\.1\.0\.2\/32 -j DROP" in the table filter of iptables-legacy$/,
  ],
  [`ip rule add from ${A} blackhole priority 77`, /^the rule of routing 77: from 10\.1\.0\.2 blackhole$/],
  [`ip route add blackhole ${A}`, /^the route blackhole 10\.1\.0\.2, which plumb did not make$/],
  [`ip route add ${A6}/128 dev up0`, /^the route fd01::2 dev up0, which plumb did not make$/],
  [
    `ip neigh replace ${B} lladdr ${MAC} dev br0 nud permanent`,
    /^the neighbour entry 10\.1\.0\.3 lladdr 02:00:00:00:00:99 on br0/,
  ],
  [
    `bridge fdb add ${MAC} dev va master static`,
    /^the forwarding entry \(fdb\) 02:00:00:00:00:99 of br0 leads to port va for ever$/,
  ],
  ['bridge link set dev va isolated on', /^the port va of the bridge has isolated on$/],
  ['bridge link set dev va learning off', /^the port va of the bridge has learning off$/],
  ['tc qdisc replace dev va root blackhole', /^the queue \(qdisc\) blackhole of va$/],
  [
    `tc qdisc add dev up0 clsact; tc filter add dev up0 egress protocol ip prio 7 bpf bytecode '1,6 0 0 2,' direct-action`,
    /^the tc filter of up0 at egress, protocol ip pref 7/,
  ],
  [
    `ip xfrm policy add src ${A} dst ${B} dir fwd action block`,
    /^the xfrm policy fwd blocks 10\.1\.0\.2\/32 → 10\.1\.0\.3\/32$/,
  ],
  ['echo 0 >/proc/sys/net/ipv4/conf/br0/forwarding', /^the setting net\.ipv4\.conf\.br0\.forwarding is 0$/],
  ['echo 8 >/proc/sys/net/ipv4/conf/br0/arp_ignore', /^the setting net\.ipv4\.conf\.br0\.arp_ignore is 8$/],
]
/** What is not about these packets. */
const ELSEWHERE = [
  table('inet', 'forward', 'ip saddr 10.9.0.0/16 drop'),
  table('inet', 'forward', 'tcp dport 25 drop'),
  'iptables-legacy -I FORWARD -s 10.9.0.1 -j DROP',
  'ip rule add from 10.9.0.1 blackhole priority 77',
  'ip route add blackhole 10.9.0.0/16',
]
/** What stands on the way in a pod. */
const IN_POD: readonly (readonly [make: string, says: RegExp])[] = [
  ['ip route del default', /^the pod has no default route of IPv4$/],
  ['ip route replace default via 10.1.0.99', /^the route default via 10\.1\.0\.99 dev eth0, which plumb did not make$/],
  ['ip route add prohibit 10.1.0.3', /^the route prohibit 10\.1\.0\.3/],
  [
    table('inet', 'input', 'meta nfproto ipv4 drop'),
    /^the rule "meta nfproto ipv4 drop" in the chain inet t c at hook input$/,
  ],
  ['ip link set eth0 mtu 1280', /^the link eth0 has an MTU of 1280 bytes/],
  [`ip neigh replace 10.1.0.1 lladdr ${MAC} dev eth0 nud permanent`, /^the neighbour entry 10\.1\.0\.1 lladdr/],
]

function scopeOf({ path }: Namespace, more: Partial<Scope> = {}): Scope {
  const ends = { ips: [A, B, A6], links: ['br0', 'up0'], ports: ['va'], portNumbers: [8472], mtu: 1500 }
  return { ns: path as NetnsPath, ...ends, macs: new Map(), ways: new Map(), gateways: [], isPod: false, ...more }
}

async function textsOf(scope: Scope): Promise<string[]> {
  const { suspects, unread } = await readSuspects(scope)
  assert.deepEqual(unread, [])
  return suspects.map(({ text }) => text)
}

// Each is named, alone, and goes by its command.
async function eachIsNamed(ns: Namespace, scope: Scope, all: typeof ON_NODE): Promise<void> {
  assert.deepEqual(await textsOf(scope), [])
  for (const [make, says] of all) {
    await sh(ns, make)
    const { suspects } = await readSuspects(scope)
    assert.equal(suspects.length, 1, `${make}: ${JSON.stringify(suspects)}`)
    const [{ text, undo } = { text: '' }] = suspects
    assert.match(text, says)
    assert.ok(undo !== undefined, text)
    await sh(ns, undo)
    assert.deepEqual(await textsOf(scope), [], `${make}: ${undo}`)
    await sh(ns, 'nft flush ruleset; tc qdisc del dev up0 clsact 2>/dev/null || true')
  }
}

describe('what stands on the way of lost packets', () => {
  it(
    'on the node it is named with its text, and its command undoes it',
    onNodeWithPods(({ node }) => eachIsNamed(node, scopeOf(node), ON_NODE)),
  )

  it(
    'in a pod it is named, too',
    onNodeWithPods(({ a }) =>
      eachIsNamed(
        a,
        scopeOf(a, { links: ['eth0'], ports: [], gateways: ['10.1.0.1', 'fd01::1'] as Ip[], isPod: true }),
        IN_POD,
      ),
    ),
  )

  it(
    'what is about other packets is not named',
    onNodeWithPods(async ({ node }) => {
      for (const make of ELSEWHERE) await sh(node, make.replace('table inet t', `table inet t${make.length}`))
      assert.deepEqual(await textsOf(scopeOf(node)), [])
    }),
  )
})
