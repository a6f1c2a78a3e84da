// lane: netns
// Tests lib/nft.
import assert from 'node:assert/strict'
import { mkdirSync, rmSync, writeFileSync } from 'node:fs'
import { inNamespaces, type Namespace, ping } from '../../support/harness.ts'
import { bridgeConf, containerId, network } from '../../support/network.ts'

/**
 * Counts packets whose mark has bit 12 or 20 as they leave the node, after all of plumb's chains at forward. Others set
 * those bits before them.
 */
const WATCH = `
table inet watch {
	counter bit12 { }
	counter bit20 { }
	chain before { type filter hook prerouting priority raw; iifname { "lan1", "lan2" } meta mark set 0x00101000; }
	chain after { type filter hook postrouting priority 200; meta mark and 0x00001000 != 0 counter name bit12; meta mark and 0x00100000 != 0 counter name bit20; }
}`

describe('rules of plugins', () => {
  it(
    'packets of other machines that the node forwards keep every bit of their mark, beside ipMasq, host ports and firewall',
    inNamespaces(['node', 'pod', 'one', 'two'], async ({ node, pod, one, two }) => {
      await twoLans(node, one, two)
      await network(node, bridgeConf({ isDefaultGateway: true, ipMasq: true })).add(pod)
      assert.deepEqual(await bitsSeen(node, one), { bit12: true, bit20: true })
      const whole = network(
        node,
        bridgeConf(
          {
            bridge: 'br1',
            isDefaultGateway: true,
            ipMasq: true,
            firewall: true,
            portMappings: [{ hostPort: 8080, containerPort: 80 }],
          },
          '10.2.0.0/24',
        ),
      )
      await whole.add(pod, { ifname: 'eth1' })
      for (const chain of [/chain forwarded/, /chain martians/]) assert.match(await rules(node), chain)
      assert.deepEqual(await bitsSeen(node, one), { bit12: true, bit20: true })
    }),
  )

  it(
    '/etc/plumb/mark-bits.json names another bit for the firewall: that one is used and cleared, the usual one is nobody’s; what cannot be a bit is refused before anything is made',
    inNamespaces(['node', 'pod', 'one', 'two'], async ({ node, pod, one, two }) => {
      await twoLans(node, one, two)
      const net = network(node, bridgeConf({ isDefaultGateway: true, firewall: true }))
      mkdirSync('/etc/plumb', { recursive: true })
      try {
        writeFileSync('/etc/plumb/mark-bits.json', '{ "firewall": 32 }')
        assert.match(
          (await net.fails('ADD', pod)).msg,
          /mark-bits\.json: firewall is 32; want a bit of the packet mark, 0 to 31/,
        )
        assert.doesNotMatch(await rules(node), /table inet plumb/)
        writeFileSync('/etc/plumb/mark-bits.json', '{ "firewall": 20 }')
        await net.add(pod)
        const text = await rules(node)
        assert.match(text, /meta mark set meta mark \| 0x00100000/)
        assert.doesNotMatch(text.slice(0, text.indexOf('table inet watch')), /0x00001000/)
      } finally {
        rmSync('/etc/plumb/mark-bits.json')
      }
    }),
  )

  it(
    'what drops 127.0.0.0/8 from other links is loaded with the first host port, not by other pods',
    inNamespaces(['node', 'pod', 'other'], async ({ node, pod, other }) => {
      const conf = bridgeConf({ isDefaultGateway: true, ipMasq: true, firewall: true })
      await network(node, conf).add(pod)
      assert.match(await rules(node), /chain forwarded/)
      assert.doesNotMatch(await rules(node), /chain martians|127\.0\.0\.0/)
      await network(node, { ...conf, portMappings: [{ hostPort: 8080, containerPort: 80 }] }).add(other)
      assert.match(await rules(node), /chain martians/)
    }),
  )

  it(
    'a load of the rules deletes the marks and chains of other versions, and leaves what an admin added',
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      const older =
        'table inet plumb { set ruleset_0123456789abcdef { type mark; }; set rules_masquerade_0123456789abcdef { type mark; }; chain olden { drop; }; chain CNI-ADMIN { counter name mine; }; counter mine { }; }'
      const { status, stderr } = await node.exec(['nft', '-f', '-'], { stdin: older })
      assert.equal(status, 0, stderr)
      await network(node, bridgeConf({ isDefaultGateway: true, ipMasq: true })).add(pod)
      const text = await rules(node)
      assert.doesNotMatch(text, /0123456789abcdef|olden/)
      assert.match(text, /chain CNI-ADMIN \{\n\t\tcounter name "mine"/)
      assert.match(text, /set rules_masquerade_[0-9a-f]{16} /)
    }),
  )
})

/** Two machines on two links of the node, which forwards between them. */
async function twoLans(node: Namespace, one: Namespace, two: Namespace): Promise<void> {
  const script = `
echo 1 >/proc/sys/net/ipv4/ip_forward
ip link add lan1 up type veth peer name eth0 netns ${containerId(one)}
ip link add lan2 up type veth peer name eth0 netns ${containerId(two)}
ip addr add 192.0.2.1/25 dev lan1
ip addr add 192.0.2.129/25 dev lan2
ip -n ${containerId(one)} link set eth0 up
ip -n ${containerId(one)} addr add 192.0.2.2/25 dev eth0
ip -n ${containerId(one)} route add default via 192.0.2.1
ip -n ${containerId(two)} link set eth0 up
ip -n ${containerId(two)} addr add 192.0.2.130/25 dev eth0
ip -n ${containerId(two)} route add default via 192.0.2.129
nft -f - <<'EOF'
${WATCH}
EOF`
  const { status, stderr } = await node.exec(['bash', '-ec', script])
  assert.equal(status, 0, stderr)
}

/** Which of the two bits are left when a packet from `one` leaves the node. */
async function bitsSeen(node: Namespace, one: Namespace): Promise<Record<string, boolean>> {
  assert.equal((await node.exec(['nft', 'reset', 'counters', 'table', 'inet', 'watch'])).status, 0)
  assert.ok(await ping(one, '192.0.2.130'))
  const { stdout } = await node.exec(['nft', 'list', 'counters', 'table', 'inet', 'watch'])
  const seen = (name: string) => !new RegExp(`counter ${name} \\{\\s+packets 0 `).test(stdout)
  return { bit12: seen('bit12'), bit20: seen('bit20') }
}

async function rules(node: Namespace): Promise<string> {
  return (await node.exec(['nft', '--stateless', 'list', 'ruleset'])).stdout
}
