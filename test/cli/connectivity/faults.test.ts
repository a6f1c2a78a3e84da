// lane: longer
// Tests cli/connectivity on three nodes, and by faults: each fault turns its own cases red, and no other ones.
import assert from 'node:assert/strict'
import {
  type Case,
  connectivity,
  failures,
  type InCluster,
  inKubernetes,
  type Member,
  OUTSIDE,
  onNodes,
  servedCluster,
  textOf,
} from '../../support/connectivity.ts'
import { sh } from '../../support/doctor.ts'

/** A fault of the network between n1 and n2. */
interface Fault {
  readonly what: string
  /** Scripts for a shell. */
  readonly n1?: string
  readonly n2?: string
  readonly mend: { readonly n1?: string; readonly n2?: string }
  /** Whether a case fails by it, among those that are made. */
  fails(one: Case): boolean
  /** What is said of a failed case. */
  readonly says: RegExp
}

const TO_OUTSIDE = OUTSIDE.flatMap((ip) => ['--outside', ip])
const PLAIN = ['TCP', 'UDP', 'SCTP', 'ICMP']
const isPlain = ({ test }: Case) => PLAIN.includes(test)
const isBetween = ({ from, to }: Case) => from.node !== to.node
const isPodToPod = ({ way }: Case) => way === 'pod → pod, other node'
const isTunnelled = (one: Case) => isBetween(one) && one.to.place.startsWith('pod')
const isByPort = ({ to }: Case) => to.place === 'host port'
const rule = (rule: string, hook = 'forward', family = 'inet') =>
  `nft 'add table ${family} fault; add chain ${family} fault one { type filter hook ${hook} priority -200; }; add rule ${family} fault one ${rule}'`
const noRule = (family = 'inet') => `nft delete table ${family} fault`
/** The first address of the other node's subnet. */
const FAR = `far=$(ip route show dev flannel.1 | sed -n 's,/24 .*,,p')`

const MAC = 'mac=$(bridge fdb show dev flannel.1 | cut -d " " -f 1 | head -n 1)'

const FAULTS: readonly Fault[] = [
  {
    what: 'n2 drops the tunnel',
    n2: rule('udp dport 8472 drop', 'prerouting'),
    mend: { n2: noRule() },
    fails: (one) => isPlain(one) && isTunnelled(one),
    says: /no answer|no echo/,
  },
  {
    what: "n1 forwards nothing from n2's pods",
    n1: rule('ip saddr 10.244.0.0/16 iifname "flannel*" drop'),
    mend: { n1: noRule() },
    fails: (one) =>
      isPlain(one) && one.family === 'IPv4' && (isPodToPod(one) || (isTunnelled(one) && one.to.node === 'n1')),
    says: /no answer|no echo/,
  },
  {
    what: 'n1 forwards no TCP',
    n1: rule('meta l4proto tcp iifname "flannel*" drop'),
    mend: { n1: noRule() },
    fails: (one) => one.test === 'TCP' && isTunnelled(one) && (isPodToPod(one) || one.to.node === 'n1'),
    says: /no answer from \S+ port \d+ in 4 s/,
  },
  {
    what: 'n1 forwards no SCTP',
    n1: rule('meta l4proto sctp iifname "flannel*" drop'),
    mend: { n1: noRule() },
    fails: (one) => one.test === 'SCTP' && isPodToPod(one),
    says: /no answer to the first message of an association in 3 s/,
  },
  {
    what: 'n2 masquerades SCTP to pods of n1',
    n2: 'nft \'add table ip fault; add chain ip fault one { type nat hook postrouting priority 90; }; add rule ip fault one ip saddr 10.244.0.0/16 meta l4proto sctp oifname "flannel*" masquerade\'',
    mend: { n2: noRule('ip') },
    fails: (one) => one.test === 'source address' && one.family === 'IPv4' && isPodToPod(one) && one.from.node === 'n2',
    says: /the receiver saw \S+, not 10\.244\.\d+\.\d+/,
  },
  {
    what: 'n1 rejects TCP by a reset',
    n1: rule('meta l4proto tcp iifname "flannel*" oifname "cni0" ct state new reject with tcp reset'),
    mend: { n1: noRule() },
    fails: (one) => one.test === 'TCP' && isTunnelled(one) && one.to.node === 'n1',
    says: /refuses the connection/,
  },
  {
    what: 'n2 drops echo requests of IPv6 to its pods',
    n2: rule('icmpv6 type echo-request iifname "flannel*" drop'),
    mend: { n2: noRule() },
    fails: (one) => one.test === 'ICMP' && one.family === 'IPv6' && isTunnelled(one) && one.to.node === 'n2',
    says: /no echo in 3 s/,
  },
  {
    what: 'n2 gets no long packets by the tunnel',
    n2: rule('udp dport 8472 udp length > 1400 drop', 'prerouting'),
    mend: { n2: noRule() },
    fails: (one) => isTunnelled(one) && (one.test === 'full size' || one.test === 'TCP'),
    says: /it vanishes: \d+ bytes arrive|connected to .* nothing more came/,
  },
  {
    what: "the route to n2's pods has a small MTU",
    n1: `${FAR}; ip route add $far/25 via $far dev flannel.1 onlink mtu lock 1300`,
    mend: { n1: `${FAR}; ip route del $far/25` },
    // The kernel of a node keeps the MTU of the route, whatever a router tells.
    fails: (one) =>
      one.family === 'IPv4' &&
      one.from.node === 'n1' &&
      ((one.test === 'full size' && isPodToPod(one)) ||
        (one.test === 'one byte more' && one.way === 'node → pod, other node')),
    says: /a router says that the path carries only 1300 bytes/,
  },
  {
    what: "n1 has a black hole for n2's pods",
    n1: `${FAR}; ip route add blackhole $far/25`,
    mend: { n1: `${FAR}; ip route del blackhole $far/25` },
    fails: (one) => isPlain(one) && one.family === 'IPv4' && isTunnelled(one),
    says: /no answer|no echo|no route/,
  },
  {
    what: 'n2 forwards no IPv6 of the tunnel',
    n2: rule('meta nfproto ipv6 iifname "flannel*" drop'),
    mend: { n2: noRule() },
    fails: (one) =>
      isPlain(one) && one.family === 'IPv6' && isTunnelled(one) && (isPodToPod(one) || one.to.node === 'n2'),
    says: /no answer|no echo/,
  },
  {
    what: 'n2 does not forward what comes by the tunnel of IPv4',
    n2: 'sysctl -qw net.ipv4.conf.flannel/1.forwarding=0',
    mend: { n2: 'sysctl -qw net.ipv4.conf.flannel/1.forwarding=1' },
    fails: (one) =>
      isPlain(one) && one.family === 'IPv4' && isTunnelled(one) && (isPodToPod(one) || one.to.node === 'n2'),
    says: /no answer|no echo|refuses/,
  },
  {
    what: 'n1 masquerades to pods of n2',
    n1: 'nft \'add table ip fault; add chain ip fault one { type nat hook postrouting priority 90; }; add rule ip fault one ip saddr 10.244.0.0/16 ip daddr 10.244.0.0/16 oifname "flannel*" masquerade\'',
    mend: { n1: noRule('ip') },
    fails: (one) => one.test === 'source address' && one.family === 'IPv4' && isPodToPod(one) && one.from.node === 'n1',
    says: /the receiver saw \S+, not 10\.244\.\d+\.\d+/,
  },
  {
    what: 'n2 takes nothing from pods',
    n2: rule('iifname "cni0" meta l4proto { tcp, udp } ct state new drop', 'input'),
    mend: { n2: noRule() },
    fails: (one) => ['TCP', 'UDP'].includes(one.test) && one.way === 'pod → its node' && one.from.node === 'n2',
    says: /no answer/,
  },
  {
    what: 'n2 masquerades to pods of n1 by IPv6',
    n2: 'nft \'add table ip6 fault; add chain ip6 fault one { type nat hook postrouting priority 90; }; add rule ip6 fault one ip6 saddr fd00:244::/48 oifname "flannel*" masquerade\'',
    mend: { n2: noRule('ip6') },
    fails: (one) => one.test === 'source address' && one.family === 'IPv6' && isPodToPod(one) && one.from.node === 'n2',
    says: /the receiver saw \S+, not fd00:244:/,
  },
  {
    what: 'n1 rejects UDP to its pods',
    n1: rule('meta l4proto udp iifname "flannel*" oifname "cni0" ct state new reject'),
    mend: { n1: noRule() },
    fails: (one) => one.test === 'UDP' && isTunnelled(one) && one.to.node === 'n1',
    says: /refuses UDP port \d+/,
  },
  {
    what: 'n1 hears no echo request of its pods',
    n1: rule('iifname "cni0" icmp type echo-request drop', 'input'),
    mend: { n1: noRule() },
    fails: (one) =>
      one.test === 'ICMP' && one.family === 'IPv4' && one.way === 'pod → its node' && one.from.node === 'n1',
    says: /no echo in 3 s/,
  },
  {
    what: 'n2 takes no connection of n1',
    n2: rule('ip saddr 172.30.0.1 meta l4proto tcp ct state new drop', 'input'),
    mend: { n2: noRule() },
    fails: (one) =>
      one.test === 'TCP' && one.family === 'IPv4' && one.way === 'pod → other node' && one.from.node === 'n1',
    says: /no answer from 172\.30\.0\.2 port \d+ in 4 s/,
  },
  {
    what: 'host ports of n1 take no new TCP of others',
    n1: rule('ct status dnat meta l4proto tcp ct state new drop'),
    mend: { n1: noRule() },
    fails: (one) => one.test === 'TCP' && isByPort(one) && one.to.node === 'n1' && one.way !== 'node → its host port',
    says: /no answer from \S+ port \d+ in 4 s/,
  },
  {
    what: 'n2 masquerades who comes by host ports',
    n2: 'nft \'add table inet fault; add chain inet fault one { type nat hook postrouting priority 90; }; add rule inet fault one ct status dnat oifname "cni0" masquerade\'',
    mend: { n2: noRule() },
    fails: (one) => one.test === 'source address' && isByPort(one) && one.to.node === 'n2' && isBetween(one),
    says: /the receiver saw \S+, not an address of \S+/,
  },
  {
    what: 'n1 has no way to the world outside by IPv4',
    n1: 'ip route add blackhole 172.30.0.200',
    mend: { n1: 'ip route del blackhole 172.30.0.200' },
    fails: ({ way, family, from }) => way === 'pod → outside' && family === 'IPv4' && from.node === 'n1',
    says: /no echo in 3 s/,
  },
  {
    what: 'n2 lets no IPv6 of pods out',
    n2: rule('ip6 daddr fd00:30::200 oifname "eth0" drop'),
    mend: { n2: noRule() },
    fails: ({ way, family, from }) => way === 'pod → outside' && family === 'IPv6' && from.node === 'n2',
    says: /no echo in 3 s/,
  },
  {
    what: 'n1 sends the tunnel to a wrong node',
    n1: `${MAC}; bridge fdb replace $mac dev flannel.1 dst 172.30.0.99`,
    mend: { n1: `${MAC}; bridge fdb replace $mac dev flannel.1 dst 172.30.0.2` },
    fails: (one) => isPlain(one) && one.family === 'IPv4' && isTunnelled(one),
    says: /no answer|no echo|refuses/,
  },
  {
    what: 'n1 has no neighbour for n2',
    n1: 'ip -4 neigh flush nud permanent dev flannel.1',
    mend: {},
    fails: (one) => isPlain(one) && one.family === 'IPv4' && isTunnelled(one),
    says: /no answer|no echo|refuses/,
  },
  {
    what: 'the tunnel of n2 is down',
    n2: 'ip link set flannel.1 down',
    mend: {},
    fails: (one) => isPlain(one) && one.family === 'IPv4' && isTunnelled(one),
    says: /no answer|no echo|refuses|no route/,
  },
]

type Served = InCluster<Awaited<ReturnType<typeof servedCluster>>>
/** A fault of what the cluster has for pods. */
interface ClusterFault extends Pick<Fault, 'what' | 'fails' | 'says'> {
  make(n1: Member, n2: Member, cluster: Served): Promise<unknown>
  mend(n1: Member, n2: Member, cluster: Served): Promise<unknown>
}
const isLeading = ({ to }: Case) => to.place === 'Service' || to.place === 'node port'
const isPolicy = (what: string) => (one: Case) => one.way.startsWith(what)

const CLUSTER_FAULTS: readonly ClusterFault[] = [
  {
    what: 'Services have no endpoint of IPv6',
    async make(_n1, _n2, { kube: { server } }) {
      server.fault = ({ method, url, body }) =>
        method === 'POST' && url.pathname.endsWith('/endpointslices') && body.includes('"IPv6"')
          ? Response.json(JSON.parse(body))
          : undefined
    },
    async mend(_n1, _n2, { kube: { server } }) {
      server.fault = undefined
    },
    fails: (one) => isLeading(one) && one.family === 'IPv6' && one.test !== 'source address',
    says: /refuses/,
  },
  {
    what: 'the name server does not know the cluster',
    make: (_n1, _n2, { serveNames }) => serveNames('192.0.2.1'),
    mend: (_n1, _n2, { serveNames }) => serveNames(),
    fails: ({ way }) => way === 'pod → DNS of the cluster',
    says: /kubernetes\.default\.svc\.cluster\.local has 192\.0\.2\.1 for the name server, not 10\.96\.0\.1$/,
  },
  {
    what: 'the name server gets no TCP of n2',
    make: (n1) => sh(n1.node.ns, rule('ip saddr != 127.0.0.1 iifname "eth0" tcp dport 53 drop', 'input')),
    mend: (n1) => sh(n1.node.ns, noRule()),
    fails: ({ way, test, from }) => way === 'pod → DNS of the cluster' && test === 'TCP' && from.node === 'n2',
    says: /no answer from 10\.96\.0\.10 port 53 in 3 s/,
  },
  {
    what: 'n2 drops node ports of others',
    make: (_n1, n2) => sh(n2.node.ns, rule('iifname "eth0" th dport 30000-32767 drop', 'prerouting')),
    mend: (_n1, n2) => sh(n2.node.ns, noRule()),
    fails: (one) => one.to.place === 'node port' && one.to.node === 'n2' && isBetween(one),
    says: /no answer/,
  },
  {
    what: 'n1 drops what goes to addresses of Services',
    make: (n1) => sh(n1.node.ns, rule('ip daddr 10.96.1.0/24 iifname "cni0" meta l4proto udp drop', 'prerouting')),
    mend: (n1) => sh(n1.node.ns, noRule()),
    fails: (one) =>
      one.to.place === 'Service' &&
      one.family === 'IPv4' &&
      one.test === 'UDP' &&
      /^pod/.test(one.way) &&
      one.from.node === 'n1',
    says: /no answer to datagrams/,
  },
  {
    what: 'n2 refuses what its policy allows',
    make: (_n1, n2) =>
      sh(
        n2.node.ns,
        rule('ip saddr 10.244.1.0/24 tcp dport 7070 iifname "flannel*" ct state new reject with tcp reset'),
      ),
    mend: (_n1, n2) => sh(n2.node.ns, noRule()),
    fails: (one) =>
      one.test === 'TCP' &&
      one.family === 'IPv4' &&
      one.from.node === 'n1' &&
      one.to.node === 'n2' &&
      [
        'pod → pod, other node',
        'node → pod, other node',
        'pod → Service, other node',
        'node → Service, other node',
        'policy allows, other node',
      ].includes(one.way),
    says: /refuses/,
  },
  {
    what: 'n2 only audits its policy',
    make: (_n1, _n2, { restart }) => restart('n2', '--policy-audit'),
    mend: (_n1, _n2, { restart }) => restart('n2'),
    fails: (one) => isPolicy('policy denies')(one) && one.to.node === 'n2',
    says: /the policy does not deny it: \d+ bytes there and back/,
  },
]

async function apply(
  scripts: { readonly n1?: string; readonly n2?: string },
  [n1, n2]: readonly [Member, Member],
): Promise<void> {
  if (scripts.n1) await sh(n1.node.ns, scripts.n1)
  if (scripts.n2) await sh(n2.node.ns, scripts.n2)
}

describe('plumb connectivity: three nodes, and faults', () => {
  it(
    'between three healthy nodes all succeeds',
    onNodes(3, async (members) => {
      const told = await connectivity(members, ...TO_OUTSIDE)
      assert.deepEqual([failures(told), told.status], [[], 0])
      assert.equal(told.cases.length, (3 * 3 + 6 * 3) * 2 * 6 + (3 + 6) * 2 + (3 * 3 + 6 * 2) * 2 * 3 + 3 * 2)
    }),
  )
  it(
    'each fault turns its own cases red, and no other ones',
    onNodes(2, async (members) => {
      // The agents would mend some of the faults.
      await Promise.all(members.map(({ agent }) => agent.stop('SIGKILL')))
      const wrong: object[] = []
      for (const fault of FAULTS) {
        await apply(fault, members as [Member, Member])
        const told = await connectivity(members, ...TO_OUTSIDE)
        const failed = told.cases.filter(({ state }) => state === 'failed')
        const wanted = told.cases.filter((one) => one.state !== 'not made' && fault.fails(one))
        const missing = wanted.filter((one) => !failed.includes(one)).map(textOf)
        const others = failed.filter((one) => !wanted.includes(one)).map((one) => `${textOf(one)}: ${one.says}`)
        const words = failed.filter(({ says }) => !fault.says.test(says)).map(({ says }) => says)
        if (failed.length === 0 || told.status !== 1 || missing.length + others.length + words.length > 0)
          wrong.push({ fault: fault.what, status: told.status, missing, others, words })
        await apply(fault.mend, members as [Member, Member])
      }
      assert.deepEqual(wrong, [])
    }),
  )
  it(
    'each fault of Services, DNS and policy turns its own cases red, and no other ones',
    inKubernetes(2, servedCluster, async (cluster) => {
      const [n1, n2] = cluster.members as [Member, Member]
      const wrong: object[] = []
      for (const { what, make, mend, fails, says } of CLUSTER_FAULTS) {
        await make(n1, n2, cluster)
        const told = await cluster.connectivity()
        await mend(n1, n2, cluster)
        const failed = told.cases.filter(({ state }) => state === 'failed')
        const wanted = told.cases.filter((one) => one.state !== 'not made' && fails(one))
        const missing = wanted.filter((one) => !failed.includes(one)).map(textOf)
        const others = failed.filter((one) => !wanted.includes(one)).map((one) => `${textOf(one)}: ${one.says}`)
        const words = failed.filter((one) => !says.test(one.says)).map((one) => one.says)
        if (failed.length === 0 || told.status !== 1 || missing.length + others.length + words.length > 0)
          wrong.push({ what, status: told.status, missing, others, words })
      }
      assert.deepEqual(wrong, [])
      assert.deepEqual(await cluster.objects(), [])
    }),
  )
})
