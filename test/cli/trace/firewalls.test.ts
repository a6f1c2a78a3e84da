// lane: long
// Tests cli/trace beside other firewalls and proxies: firewalld itself, the chains of ufw and of kube-proxy.
import assert from 'node:assert/strict'
import { UFW } from '../../support/doctor.ts'
import { firewalld, missing } from '../../support/firewalld.ts'
import { skip } from '../../support/skip.ts'
import { arrives, isLostAt, onNodeWithPods, sh, traced } from '../../support/traces.ts'

const [A, B, OUT] = ['10.1.0.2', '10.1.0.3', '192.0.2.9'] as const

describe('plumb trace beside other firewalls', () => {
  it('DR10: firewalld rejects what pods forward: its chain and its rule', async function (this: Mocha.Context) {
    const lacks = missing()
    if (lacks !== '') skip(this, `no firewalld: ${lacks}`)
    await onNodeWithPods(async ({ node }) => {
      const daemon = await firewalld(node)
      const seen = /the chain inet firewalld filter_\S+ drops it: .*reject/
      for (const to of [OUT, B])
        isLostAt(await traced(node, A, to), 'rules', /the chain inet firewalld filter_FORWARD drops it/, seen)
      const toNode = await traced(node, A, '10.1.0.1', '99')
      assert.equal(toNode.lostAt, 'rules', JSON.stringify(toNode))
      assert.match(toNode.conclusion, /chain inet firewalld filter_/)
      await daemon.stop()
      await sh(node, 'nft delete table inet firewalld 2>/dev/null || true')
      arrives(await traced(node, A, OUT))
    }).call(this)
  })
  it(
    'DR11: ufw drops what pods forward and closes a port of the node: its chains',
    onNodeWithPods(async ({ node }) => {
      await sh(node, UFW)
      arrives(await traced(node, A, OUT))
      await sh(node, 'iptables -P FORWARD DROP; iptables -P INPUT DROP')
      isLostAt(
        await traced(node, A, OUT),
        'rules',
        /ip filter FORWARD drops it \(policy drop\)/,
        /FORWARD drops it: policy/,
      )
      const closed = await traced(node, A, '10.1.0.1', '99')
      assert.equal(closed.lostAt, 'rules', JSON.stringify(closed))
      assert.match(closed.hops.at(-1)?.seen?.says ?? '', /the chain ip filter INPUT drops it: policy drop/)
      // What `ufw route allow` and `ufw allow` add, and a rule of an administrator in a chain of ufw.
      await sh(
        node,
        `iptables -A ufw-user-forward -s ${A} -j ACCEPT; iptables -A ufw-user-forward -d ${A} -j ACCEPT
         iptables -A ufw-user-input -p tcp --dport 99 -j ACCEPT; iptables -I ufw-user-input -p tcp --dport 98 -j DROP`,
      )
      arrives(await traced(node, A, OUT))
      isLostAt(await traced(node, A, '10.1.0.1', '99'), 'receiver', /no program listens/, /RST/)
      const denied = await traced(node, A, '10.1.0.1', '98')
      assert.match(
        denied.hops.at(-1)?.seen?.says ?? '',
        /the chain ip filter ufw-user-input drops it: .*tcp dport 98 .*drop$/,
      )
    }),
  )
  it(
    "DR13: kube-proxy's rules lead a packet to an endpoint: the chain that does so",
    onNodeWithPods(async ({ node }) => {
      await sh(
        node,
        `iptables -t nat -N KUBE-SERVICES; iptables -t nat -N KUBE-SVC-X; iptables -t nat -N KUBE-SEP-Y
         iptables -t nat -A PREROUTING -j KUBE-SERVICES; iptables -t nat -A OUTPUT -j KUBE-SERVICES
         iptables -t nat -A KUBE-SERVICES -d 10.96.0.99/32 -p tcp --dport 80 -j KUBE-SVC-X
         iptables -t nat -A KUBE-SVC-X -j KUBE-SEP-Y
         iptables -t nat -A KUBE-SEP-Y -p tcp -j DNAT --to-destination ${B}:80
         iptables -N KUBE-FORWARD; iptables -A FORWARD -j KUBE-FORWARD
         iptables -A KUBE-FORWARD -m conntrack --ctstate INVALID -j DROP`,
      )
      const said = await traced(node, A, '10.96.0.99', '80')
      assert.equal(
        said.hops.find(({ hop }) => hop === 'service')?.seen?.says,
        `→ ${B}:80 by the chain ip nat KUBE-SEP-Y`,
        JSON.stringify(said),
      )
      assert.deepEqual([said.lostAt, said.differsAt], ['receiver', undefined])
      // A Service without endpoints.
      await sh(node, 'iptables -I FORWARD -d 10.96.0.98/32 -p tcp -j REJECT; ip route add 10.96.0.0/16 via 192.0.2.9')
      isLostAt(
        await traced(node, A, '10.96.0.98', '80'),
        'rules',
        /ip filter FORWARD/,
        /FORWARD drops it: .*10\.96\.0\.98.*reject/,
      )
    }),
  )
})
