// lane: quick
// Tests plugins/portmap.ts and lib/nft.
import assert from 'node:assert/strict'
import type { Attachment, ChainedPlugin, NetConf, NodeFacts, Wiring } from '../../lib/cni/plugin.ts'
import type { Result } from '../../lib/cni/result.ts'
import { batches } from '../../lib/state/apply.ts'
import { read } from '../../lib/text/shape.ts'
import portmap from '../../plugins/portmap.ts'
import { AT } from '../support/attachment.ts'

const { conf, wire, notes } = portmap as ChainedPlugin<NetConf>
const ADDRESSES = [
  { address: '10.1.0.2/24', interface: 2 },
  { address: 'fd00:1::2/64', interface: 2 },
]
const BRIDGED = {
  interfaces: [{ name: 'cni0' }, { name: 'veth1' }, { name: 'eth0', sandbox: '/run/netns/pod' }],
  ips: ADDRESSES,
} as unknown as Result
const WEB = { hostPort: 8080, containerPort: 80 }

describe('portmap.wire()', () => {
  it('wants one nft transaction of elements for a dual-stack pod, and a sysctl', () => {
    assert.equal(
      text(wired([WEB])),
      `
# host file
net/ipv4/conf/cni0/route_localnet = 1
reserve tcp port 8080 of any4
reserve tcp port 8080 of any6
# host nft
add element inet plumb local4 { 10.1.0.0/24 . 10.1.0.0/24 comment "net" }
add element inet plumb local6 { fd00:1::/64 . fd00:1::/64 comment "net" }
add element inet plumb ports4 { tcp . 8080 comment "net/c1" : 10.1.0.2 . 80 }
add element inet plumb snat4 { tcp . 10.1.0.2 . 80 comment "net/c1" }
add element inet plumb ports6 { tcp . 8080 comment "net/c1" : fd00:1::2 . 80 }
add element inet plumb snat6 { tcp . fd00:1::2 . 80 comment "net/c1" }`,
    )
  })

  it('removes exactly what it made; the pair of the subnet when no other pod has it', () => {
    const { own } = wired([{ ...WEB, protocol: 'udp', hostIP: '192.0.2.1' }])
    assert.equal(
      lines({ put: [], drop: own }),
      `
# host file
free udp port 8080 of 192.0.2.1
# host nft
delete element inet plumb local4 { 10.1.0.0/24 . 10.1.0.0/24 }
delete element inet plumb ports4at { 192.0.2.1 . udp . 8080 }
add element inet plumb left4 { 10.1.0.2 . 80 timeout 1s expires 1s comment "net/c1" }
delete element inet plumb snat4 { udp . 10.1.0.2 . 80 }
# host conntrack
-D -f ipv4 -p udp --orig-dst 192.0.2.1 --orig-port-dst 8080 --reply-src 10.1.0.2`,
    )
  })

  it('takes TCP, sctp and no protocol at all for what they are, in keys of any case, and forgets connections of UDP alone', () => {
    const all = wired([
      { HostPort: 1, ContainerPort: 1, Protocol: 'TCP', HostIP: '' },
      { hostPort: 2, containerPort: 2, protocol: 'sctp' },
      { hostPort: 3, containerPort: 3, protocol: '' },
      { hostPort: 4, containerPort: 4, protocol: 'Udp' },
    ])
    assert.deepEqual(
      [...text(all).matchAll(/ports4 \{ (\w+ \. \d) /g)].map(([, key]) => key),
      ['tcp . 1', 'sctp . 2', 'tcp . 3', 'udp . 4'],
    )
    assert.match(
      text(all),
      /# host conntrack\n-L -f ipv4 -p udp --orig-port-dst 4\n-L -f ipv4 -p udp --orig-port-src 4\n-L -f ipv6 -p udp --orig-port-dst 4\n-L -f ipv6 -p udp --orig-port-src 4$/,
    )
    for (const protocol of ['icmp', 'tcp ', 'tcp; flush ruleset', 6])
      assert.throws(() => wired([{ ...WEB, protocol }]), {
        name: 'ValueError',
        message: /^Cannot read runtimeConfig\.portMappings\[0\]\.protocol .*: want tcp, udp or sctp$/,
      })
  })

  it('names targets to be masqueraded where needed, always, or never; never goes before always', () => {
    const sets = (keys: object) =>
      [...text(wired([{ ...WEB, hostIP: '0.0.0.0' }], keys)).matchAll(/plumb (\w+) /g)].map(([, set]) => set)
    assert.deepEqual(sets({}), ['local4', 'ports4', 'snat4'])
    assert.deepEqual(sets({ masqAll: true }), ['local4', 'ports4', 'masqall4'])
    assert.deepEqual(sets({ snat: false }), ['ports4'])
    assert.deepEqual(sets({ snat: false, masqAll: true }), ['ports4'])
    assert.doesNotMatch(text(wired([WEB], { snat: false })), /route_localnet/)
  })

  it('sends the ports of a network with conditions through its own chain, keyed as closely as the ports are', () => {
    const made = text(
      wired([WEB, { hostPort: 8081, containerPort: 80, hostIP: '192.0.2.1' }], {
        conditionsV4: ['ip', 'saddr', '!=', '{', '10.0.0.0/8,', '172.16.0.0/12', '}'],
        snat: false,
      }),
    )
    assert.equal(
      made.slice(made.indexOf('# host nft')),
      `# host nft
add chain inet plumb cond4_2747ee50abd728e8
flush chain inet plumb cond4_2747ee50abd728e8
add rule inet plumb cond4_2747ee50abd728e8 ip saddr != { 10.0.0.0/8, 172.16.0.0/12 } dnat ip to ip daddr . meta l4proto . th dport map @ports4atif
add rule inet plumb cond4_2747ee50abd728e8 ip saddr != { 10.0.0.0/8, 172.16.0.0/12 } dnat ip to meta l4proto . th dport map @ports4if
add element inet plumb ports4if { tcp . 8080 comment "net/c1" : 10.1.0.2 . 80 }
add element inet plumb conditional4 { tcp . 8080 comment "net/c1" : jump cond4_2747ee50abd728e8 }
add element inet plumb ports6 { tcp . 8080 comment "net/c1" : fd00:1::2 . 80 }
add element inet plumb ports4atif { 192.0.2.1 . tcp . 8081 comment "net/c1" : 10.1.0.2 . 80 }
add element inet plumb conditional4at { 192.0.2.1 . tcp . 8081 comment "net/c1" : jump cond4_2747ee50abd728e8 }`,
    )
  })

  it('sets hairpin on the port where bridged frames meet the rules, and only on what a bridge plugin says is one', () => {
    const nf = { bridgeNf: true }
    assert.match(text(wired([WEB], {}, BRIDGED, nf)), /^\n# host ip\nlink set dev veth1 type bridge_slave hairpin on\n/)
    // ptp, then bandwidth's ifb.
    const routed = {
      interfaces: [{ name: 'veth1' }, { name: 'eth0', sandbox: '/x' }, { name: 'bwp0' }],
      ips: ADDRESSES.map((one) => ({ ...one, interface: 1 })),
    } as unknown as Result
    assert.doesNotMatch(text(wired([WEB], {}, routed, nf)), /# host ip/)
  })

  it('lets 127.0.0.1 onto the links that lead to the pod: all of the node in the result but the port, or the one of the routing table', () => {
    const names = (given: object) =>
      [
        ...text(
          wired([WEB], {}, { ips: [{ address: '10.1.0.2/24' }], ...given } as unknown as Result, {
            bridgeNf: false,
            deviceTo: (ip) => (ip === '10.1.0.2' ? 'found0' : 'other0') as never,
          }),
        ).matchAll(/conf\/(.*)\/route_localnet/g),
      ].map(([, name]) => name)
    assert.deepEqual(names(BRIDGED), ['cni0'])
    assert.deepEqual(names({ ...BRIDGED, interfaces: [...(BRIDGED.interfaces ?? []), { name: 'cni0.100' }] }), [
      'cni0',
      'cni0.100',
    ])
    assert.deepEqual(names({}), ['found0'])
    assert.deepEqual(names({ ips: [{ address: 'fd00::2/64' }] }), [])
    assert.throws(() => names({ interfaces: [{ name: '../../net/ipv4/conf/all' }] }), {
      name: 'ValueError',
      message: /^Cannot read the interface of prevResult/,
    })
  })

  it('wants nothing without mappings, without an address, or for the other family alone', () => {
    for (const made of [
      wired([]),
      wired([WEB], {}, {}),
      wired([{ ...WEB, hostIP: '::' }], {}, { ips: [{ address: '10.1.0.2/24' }] } as unknown as Result),
    ])
      assert.deepEqual([made.shared, made.own], [[], []])
  })

  it('passes the result on as it came', () => assert.equal(wired([WEB]).result, BRIDGED))
})

describe('portmap: its configuration', () => {
  const refused: Record<string, readonly [object, RegExp]> = {
    'host port 0': [
      mapped({ hostPort: 0 }),
      /^Cannot read runtimeConfig\.portMappings\[0\]\.hostPort 0: want a whole number, 1 to 65535$/,
    ],
    'host port -1': [mapped({ hostPort: -1 }), /hostPort -1: want/],
    'host port 65536': [mapped({ hostPort: 65536 }), /hostPort 65536: want/],
    'container port 0': [mapped({ containerPort: 0 }), /containerPort 0: want/],
    'container port 65536': [mapped({ containerPort: 65536 }), /containerPort 65536: want/],
    'no container port': [mapped({ containerPort: undefined }), /containerPort: it is missing/],
    'a port that is text': [mapped({ hostPort: '8080' }), /hostPort "8080": want/],
    'a range that ends above 65535': [mapped({ hostPort: 65530, range: 7 }), /7 ports from 65530 on end above 65535/],
    'a range of container ports that ends above 65535': [
      mapped({ containerPort: 65535, range: 2 }),
      /2 ports from 65535 on end above 65535/,
    ],
    'an address that is none': [mapped({ hostIP: '192.0.2.1; flush ruleset' }), /hostIP .*: want an IP address/],
    'one host port for two container ports': [
      { runtimeConfig: { portMappings: [WEB, { hostPort: 8080, containerPort: 81 }] } },
      /host port 8080\/tcp leads to container ports 80 and 81: want one of them/,
    ],
    'the same by 0.0.0.0': [
      { runtimeConfig: { portMappings: [WEB, { hostPort: 8080, containerPort: 81, hostIP: '0.0.0.0' }] } },
      /leads to container ports 80 and 81/,
    ],
    'the same by a range': [
      { runtimeConfig: { portMappings: [WEB, { hostPort: 8079, containerPort: 90, range: 2 }] } },
      /host port 8080\/tcp leads to container ports 80 and 91/,
    ],
    'another backend': [{ backend: 'ipvs' }, /^Cannot read backend "ipvs": want one of iptables, nftables$/],
    'a mark bit of 32': [{ markMasqBit: 32 }, /markMasqBit 32: want a whole number, 0 to 31/],
    'a mark bit of -1': [{ markMasqBit: -1 }, /markMasqBit -1: want/],
    'both a mark bit and a chain': [
      { markMasqBit: 13, externalSetMarkChain: 'KUBE-MARK-MASQ' },
      /^Cannot specify externalSetMarkChain and markMasqBit/,
    ],
    'a chain of iptables with nftables': [
      { backend: 'nftables', externalSetMarkChain: 'KUBE-MARK-MASQ' },
      /^Cannot use externalSetMarkChain with backend "nftables"/,
    ],
    'conditions of nft with iptables': [
      { backend: 'iptables', conditionsV6: ['ip6', 'saddr', 'fd00::/8'] },
      /^Cannot use conditionsV6 in nft's syntax with backend "iptables"/,
    ],
    "conditions in iptables' syntax": [
      { conditionsV4: ['!', '-s', '10.0.0.0/8', '-p', 'tcp'] },
      /this is iptables' syntax; want nft's: \["ip","saddr","!=","10\.0\.0\.0\/8","meta","l4proto","tcp"\]$/,
    ],
    'the same for IPv6, with nftables': [
      { backend: 'nftables', conditionsV6: ['-d', 'fd00::1'] },
      /want nft's: \["ip6","daddr","fd00::1"\]$/,
    ],
    'conditions of iptables that have no short form': [
      { conditionsV4: ['-m', 'set', '--match-set', 'x', 'src'] },
      /want nft's: \["ip","saddr","!=","10\.0\.0\.0\/8"\]$/,
    ],
    'conditions that end the rule': [
      { conditionsV4: ['ip saddr 1.2.3.4 accept; flush ruleset'] },
      /without ";", "#" or line breaks$/,
    ],
    'conditions with a quote left open': [
      { conditionsV4: ['ip saddr 1.2.3.4 log prefix "'] },
      /want words of an nft match, with quotes in pairs/,
    ],
    'conditions with a line break': [{ conditionsV4: ['ip saddr 1.2.3.4\nflush ruleset'] }, /without ";"/],
    'conditions that are text': [{ conditionsV4: 'ip saddr 1.2.3.4' }, /want a list of words/],
  }
  for (const [what, [keys, message]] of Object.entries(refused))
    it(`${what}: refused, and the message says what would be right`, () =>
      assert.throws(() => wired(undefined, keys), { name: 'ValueError', message }))

  const accepted: Record<string, readonly [object, readonly string[]]> = {
    'no backend': [{}, []],
    'an empty backend': [{ backend: '' }, []],
    nftables: [{ backend: 'nftables' }, []],
    iptables: [{ backend: 'iptables' }, ['"backend": "iptables"']],
    'a mark bit of 0': [{ markMasqBit: 0 }, ['"markMasqBit"']],
    'a mark bit of 31, with nftables': [{ backend: 'nftables', markMasqBit: 31 }, ['"markMasqBit"']],
    'an external mark chain, with iptables': [
      { backend: 'iptables', externalSetMarkChain: 'KUBE-MARK-MASQ' },
      ['"backend": "iptables"', '"externalSetMarkChain"'],
    ],
    'empty conditions': [{ backend: 'iptables', conditionsV4: [], conditionsV6: [''] }, ['"backend": "iptables"']],
  }
  for (const [what, [keys, keysNamed]] of Object.entries(accepted)) {
    it(`${what}: the same elements; what is not used is said so`, () => {
      assert.equal(text(wired([WEB], keys)), text(wired([WEB])))
      const said = notes?.(read(conf, { cniVersion: '1.1.0', name: 'net', type: 'portmap', ...keys }).value) ?? []
      assert.deepEqual(
        said,
        keysNamed.map(
          (key) =>
            `${key} is not used: portmap works with nftables and its own rules, and the packets come out the same`,
        ),
      )
    })
  }

  it('40 ports and a container id of 200 characters: one transaction all the same, comments of at most 128', () => {
    const at = { ...AT, containerId: 'c'.repeat(200), network: 'n'.repeat(120) } as unknown as Attachment
    const made = wired(
      Array.from({ length: 40 }, (_, i) => ({ hostPort: 1000 + i, containerPort: 80 })),
      {},
      BRIDGED,
      undefined,
      at,
    )
    assert.equal(text(made).match(/add element inet plumb ports4 /g)?.length, 40)
    for (const [, comment = ''] of text(made).matchAll(/comment "(.*?)"/g)) assert.ok(comment.length <= 128, comment)
  })

  it('takes the same mapping twice, and a range of 0, for one', () => {
    assert.equal(text(wired([WEB, { ...WEB, range: 0 }, { ...WEB, protocol: 'TCP' }])), text(wired([WEB])))
  })
})

function mapped(keys: object): object {
  return { runtimeConfig: { portMappings: [{ ...WEB, ...keys }] } }
}

function wired(
  portMappings: readonly object[] | undefined,
  keys: object = {},
  given: Result = BRIDGED,
  node: NodeFacts = { bridgeNf: false },
  at = AT,
): Wiring {
  const raw = {
    cniVersion: '1.1.0',
    name: 'net',
    type: 'portmap',
    ...(portMappings && { runtimeConfig: { portMappings } }),
    ...keys,
  }
  return wire(read(conf, JSON.parse(JSON.stringify(raw))).value, at, given, node)
}

function text({ shared, own }: Wiring): string {
  return lines({ put: [...shared, ...own], drop: [] })
}

function lines(plan: Parameters<typeof batches>[0]): string {
  return batches(plan)
    .map(({ ns, tool, steps }) => `\n# ${ns} ${tool}\n${steps.map(({ line }) => line.text).join('\n')}`)
    .join('')
}
