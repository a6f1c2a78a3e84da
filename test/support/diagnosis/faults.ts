// The alphabet of the generator of faults: each kind of state on the data path, and a change of it. A letter draws what
// it changes. It knows how to undo that, and which words name what it changed.
import type { Namespace } from '../harness.ts'
import type { Place, PodOf, World } from './world.ts'

/** A change of one thing of the data path. */
export interface Fault {
  /** The kind of state: `route`, `nft`. */
  readonly kind: string
  /** What is done, for people. */
  readonly text: string
  /** The nodes at which it is, by number from 0. All of them when it is between the nodes. */
  readonly nodes: readonly number[]
  readonly ns: Namespace
  /** Scripts for a shell in that namespace. */
  readonly make: string
  readonly undo: string
  /** All of these stand in a text that names what was changed. */
  readonly names: readonly RegExp[]
}
/** Draws from the generator's numbers. */
export interface Draw {
  of<T>(all: readonly T[]): T
  below(limit: number): number
}
interface Site extends Draw {
  readonly world: World
  readonly place: Place
  readonly i: number
  readonly other: Place
  readonly pod: PodOf
  /** A name of its own, for tables and chains. */
  readonly word: string
}
type Letter = (site: Site) => Omit<Fault, 'kind' | 'nodes'> & Partial<Pick<Fault, 'nodes'>>
type Family = 'v4' | 'v6'

const FAMILIES = ['v4', 'v6'] as const
const ip = (family: Family) => (family === 'v4' ? 'ip' : 'ip -6')
const tunnelOf = (family: Family) => (family === 'v4' ? 'flannel.1' : 'flannel-v6.1')
const named = (text: string) => new RegExp(`(^|[^\\w.:-])${text.replaceAll(/[.*+?^${}()|[\]\\]/g, '\\$&')}($|[^\\w:-])`)
const one = (text: string, ns: Namespace, make: string, undo: string, ...names: (string | RegExp)[]) => ({
  text,
  ns,
  make,
  undo,
  names: names.map((name) => (typeof name === 'string' ? named(name) : name)),
})

/** A link of the data path at which something is changed, and whose it is. */
function linkOf(
  { of, place, pod, world, i }: Site,
  ...names: ('uplink' | 'tunnel' | 'bridge' | 'port' | 'pod' | 'wire')[]
) {
  const node = place.node.ns
  const kind = of(names)
  const [name, ns] = {
    uplink: ['eth0', node],
    tunnel: [tunnelOf(of(FAMILIES)), node],
    bridge: ['cni0', node],
    port: [pod.link, node],
    pod: ['eth0', pod.ns],
    wire: [`port${i + 1}`, world.hub],
  }[kind] as [string, Namespace]
  // Inside a pod and between the nodes, doctor names whose link it is.
  const key =
    kind === 'pod'
      ? new RegExp(`${pod.link}|${pod.name}|${pod.v4}`)
      : kind === 'wire'
        ? /eth0|172\.30\.0\.\d|n\d/
        : named(name)
  return { kind, name, ns, key }
}

const LETTERS: Readonly<Record<string, readonly Letter[]>> = {
  link: [
    (site) => {
      const { name, ns, key } = linkOf(site, 'bridge', 'port', 'pod', 'tunnel', 'wire')
      return one(`${name} down`, ns, `ip link set ${name} down`, `ip link set ${name} up`, key)
    },
    (site) => {
      const { name, ns, key } = linkOf(site, 'uplink', 'bridge', 'port', 'tunnel', 'wire')
      const mtu = site.of([600, 1300, 1400])
      const undo = `ip link set ${name} mtu $(cat /run/mtu.${site.word})`
      const keep = `ip -o link show ${name} | sed 's/.* mtu \\([0-9]*\\) .*/\\1/' >/run/mtu.${site.word}`
      return one(
        `${name} mtu ${mtu}`,
        ns,
        `${keep}; ip link set ${name} mtu ${mtu}`,
        undo,
        key,
        /MTU|\bmtu\b|size|bytes/,
      )
    },
    (site) => {
      const { name, ns, key } = linkOf(site, 'bridge', 'port', 'pod', 'tunnel', 'uplink')
      const mac = `02:00:5e:${[1, 2, 3].map(() => (16 + site.below(200)).toString(16)).join(':')}`
      return one(
        `${name} address ${mac}`,
        ns,
        `ip -o link show ${name} | sed 's/.*ether \\([0-9a-f:]*\\) .*/\\1/' >/run/mac.${site.word}; ip link set ${name} address ${mac}`,
        `ip link set ${name} address $(cat /run/mac.${site.word})`,
        key,
        /MAC|address|neigh/i,
      )
    },
    (site) => {
      const { name, ns } = linkOf(site, 'port')
      return one(`${name} nomaster`, ns, `ip link set ${name} nomaster`, `ip link set ${name} master cni0`, named(name))
    },
    (site) => {
      const { name, ns, key } = linkOf(site, 'bridge', 'port', 'tunnel')
      const other = `x${site.word}`
      return one(
        `${name} is renamed ${other}`,
        ns,
        `ip link set ${name} down; ip link set ${name} name ${other}; ip link set ${other} up`,
        `ip link set ${other} down; ip link set ${other} name ${name}; ip link set ${name} up`,
        key,
      )
    },
    (site) => {
      const { name, ns, key } = linkOf(site, 'bridge', 'port', 'tunnel', 'uplink')
      return one(
        `${name} root qdisc blackhole`,
        ns,
        `tc qdisc replace dev ${name} root blackhole`,
        `tc qdisc del dev ${name} root`,
        key,
        /qdisc|tc |blackhole/,
      )
    },
    (site) => {
      const { name, ns, key } = linkOf(site, 'bridge', 'port', 'tunnel', 'uplink')
      const way = site.of(['ingress', 'egress'])
      const proto = site.of(['ip', 'ipv6', 'all'])
      return one(
        `${name} tc filter ${way} ${proto} drop`,
        ns,
        `tc qdisc add dev ${name} clsact; tc filter add dev ${name} ${way} protocol ${proto} prio 7 bpf bytecode '1,6 0 0 2,' direct-action`,
        `tc qdisc del dev ${name} clsact`,
        key,
        /tc |filter|qdisc/,
      )
    },
    (site) => {
      const { name, ns } = linkOf(site, 'port')
      const flag = site.of([
        'isolated on',
        'learning off',
        'flood off',
        'locked on',
        'neigh_suppress on',
        'mcast_flood off',
      ])
      const [word, state] = flag.split(' ')
      return one(
        `bridge port ${name} ${flag}`,
        ns,
        `bridge link set dev ${name} ${flag}`,
        `bridge link set dev ${name} ${word} ${state === 'on' ? 'off' : 'on'}`,
        named(name),
        new RegExp(word as string),
      )
    },
  ],
  address: [
    (site) => {
      const family = site.of(FAMILIES)
      const name = site.of(['cni0', tunnelOf(family)])
      return one(
        `no ${family} addresses on ${name}`,
        site.place.node.ns,
        `${ip(family)} -o addr show dev ${name} scope global | awk '{print $4}' >/run/addr.${site.word}; ${ip(family)} addr flush dev ${name} scope global`,
        `for a in $(cat /run/addr.${site.word}); do ip addr replace $a dev ${name} nodad 2>/dev/null || ip addr replace $a dev ${name}; done`,
        name,
      )
    },
    (site) => {
      const family = site.of(FAMILIES)
      const [taken, whose] = site.of([
        [site.pod[family], 'its pod'],
        [site.other.pods[0][family], 'a pod of another node'],
        [site.other[family], 'another node'],
      ])
      const cidr = `${taken}/${family === 'v4' ? 32 : 128}`
      return one(
        `${cidr} (${whose}) on lo`,
        site.place.node.ns,
        `ip addr add ${cidr} dev lo nodad 2>/dev/null || ip addr add ${cidr} dev lo`,
        `ip addr del ${cidr} dev lo`,
        taken,
      )
    },
    (site) => {
      const family = site.of(FAMILIES)
      return one(
        `${site.pod.name} loses its ${family} address`,
        site.pod.ns,
        `${ip(family)} addr flush dev eth0 scope global`,
        `ip addr add ${site.pod[family]}/${family === 'v4' ? 24 : 64} dev eth0 ${family === 'v6' ? 'nodad' : ''}; ${ip(family)} route replace default via ${site.place.subnets[family].replace(/(0|::)\/\d+$/, family === 'v4' ? '1' : '::1')}`,
        new RegExp(`${site.pod[family]}|${site.pod.name}|${site.pod.link}`),
      )
    },
  ],
  route: [
    (site) => {
      const family = site.of(FAMILIES)
      const type = site.of(['blackhole', 'unreachable', 'prohibit'])
      const host = family === 'v4' ? '/32' : '/128'
      const to = site.of([
        `${site.pod[family]}${host}`,
        `${site.other.pods[site.below(2)]?.[family]}${host}`,
        `${site.other[family]}${host}`,
      ])
      return one(
        `route ${type} ${to}`,
        site.place.node.ns,
        `ip route add ${type} ${to}`,
        `ip route del ${type} ${to}`,
        named(to.replace(/\/\d+$/, '')),
        new RegExp(type),
      )
    },
    (site) => {
      const family = site.of(FAMILIES)
      const host = family === 'v4' ? '/32' : '/128'
      const to = site.of([`${site.pod[family]}${host}`, `${site.other.pods[0][family]}${host}`])
      const dev = site.of(['lo', 'eth0', 'cni0'])
      return one(
        `route ${to} dev ${dev}`,
        site.place.node.ns,
        `ip route add ${to} dev ${dev}`,
        `ip route del ${to} dev ${dev}`,
        named(to.replace(/\/\d+$/, '')),
      )
    },
    (site) => {
      const family = site.of(FAMILIES)
      const to = site.other.subnets[family]
      return one(
        `no route to ${to}`,
        site.place.node.ns,
        `ip route show ${to} >/run/route.${site.word}; ip route del ${to}`,
        `ip route replace $(cat /run/route.${site.word}) onlink`,
        to.replace(/\/\d+$/, ''),
      )
    },
    (site) => {
      const family = site.of(FAMILIES)
      const way = family === 'v4' ? '172.30.0.99' : 'fd00:30::99'
      const to = site.other.subnets[family]
      return one(
        `route ${to} via ${way}, metric 1 less`,
        site.place.node.ns,
        `ip route replace ${to} via ${way} dev eth0 metric ${family === 'v4' ? 0 : 1}`,
        `ip route del ${to} via ${way} dev eth0`,
        to.replace(/\/\d+$/, ''),
      )
    },
    (site) => {
      const family = site.of(FAMILIES)
      return one(
        `${site.pod.name} has no ${family} default route`,
        site.pod.ns,
        `${ip(family)} route del default`,
        `${ip(family)} route add default via ${site.place.subnets[family].replace(/(0|::)\/\d+$/, family === 'v4' ? '1' : '::1')}`,
        new RegExp(`${site.pod[family]}|${site.pod.name}|${site.pod.link}`),
        /default route|route/,
      )
    },
    (site) => {
      const family = site.of(FAMILIES)
      const way = site.place.subnets[family].replace(/(0|::)\/\d+$/, family === 'v4' ? '99' : '::99')
      return one(
        `${site.pod.name} has the ${family} gateway ${way}`,
        site.pod.ns,
        `${ip(family)} route replace default via ${way} dev eth0`,
        `${ip(family)} route replace default via ${site.place.subnets[family].replace(/(0|::)\/\d+$/, family === 'v4' ? '1' : '::1')} dev eth0`,
        new RegExp(`${site.pod[family]}|${site.pod.name}|${site.pod.link}|${way}`),
        /gateway|route/,
      )
    },
  ],
  rule: [
    (site) => {
      const family = site.of(FAMILIES)
      const [what, type] = [
        site.of([
          `from ${site.place.subnets[family]}`,
          `to ${site.other.subnets[family]}`,
          `iif cni0`,
          `from ${site.pod[family]}`,
        ]),
        site.of(['blackhole', 'prohibit', 'unreachable']),
      ]
      const priority = 100 + site.below(900)
      return one(
        `rule ${priority} ${what} ${type}`,
        site.place.node.ns,
        `${ip(family)} rule add ${what} ${type} priority ${priority}`,
        `${ip(family)} rule del priority ${priority}`,
        new RegExp(`\\b${priority}\\b`),
      )
    },
    (site) => {
      const family = site.of(FAMILIES)
      const [priority, table] = [100 + site.below(900), 2000 + site.below(900)]
      const what = site.of([`from ${site.place.subnets[family]}`, `to ${site.other.subnets[family]}`, 'iif cni0'])
      const via = site.of([
        `default via ${family === 'v4' ? '172.30.0.99' : 'fd00:30::99'} dev eth0`,
        'blackhole default',
        'default dev lo',
      ])
      return one(
        `rule ${priority} ${what} lookup ${table}: ${via}`,
        site.place.node.ns,
        `${ip(family)} route add ${via} table ${table}; ${ip(family)} rule add ${what} lookup ${table} priority ${priority}`,
        `${ip(family)} rule del priority ${priority}; ${ip(family)} route flush table ${table}`,
        new RegExp(`\\b(${priority}|${table})\\b`),
      )
    },
  ],
  neighbour: [
    (site) => {
      const family = site.of(FAMILIES)
      const [at, dev, ns] = site.of<[string, string, Namespace]>([
        [site.pod[family], 'cni0', site.place.node.ns],
        [site.other[family], 'eth0', site.place.node.ns],
        [site.other.subnets[family].replace(/\/\d+$/, ''), tunnelOf(family), site.place.node.ns],
        [site.place.subnets[family].replace(/(0|::)\/\d+$/, family === 'v4' ? '1' : '::1'), 'eth0', site.pod.ns],
      ])
      return one(
        `neighbour ${at} on ${dev} has another MAC`,
        ns,
        `ip neigh replace ${at} lladdr 02:00:00:00:99:99 dev ${dev} nud permanent`,
        `ip neigh del ${at} dev ${dev}`,
        new RegExp(ns === site.pod.ns ? `${at}|${site.pod.name}|${site.pod.link}` : at.replaceAll('.', '\\.')),
        /neigh|MAC|02:00:00:00:99:99/i,
      )
    },
  ],
  fdb: [
    (site) => {
      const family = site.of(FAMILIES)
      const dev = tunnelOf(family)
      const way = family === 'v4' ? '172.30.0.99' : 'fd00:30::99'
      return one(
        `all entries of the fdb of ${dev} lead to ${way}`,
        site.place.node.ns,
        `bridge fdb show dev ${dev} | while read mac rest; do bridge fdb replace $mac dev ${dev} dst ${way} self permanent; done`,
        `true`,
        dev,
      )
    },
    (site) => {
      const [a, b] = site.place.pods
      const mac = `$(ip netns exec ${a.ns.path.replace(/.*\//, '')} cat /sys/class/net/eth0/address)`
      return one(
        `the bridge has ${a.name}'s MAC at ${b.link}`,
        site.place.node.ns,
        `bridge fdb replace ${mac} dev ${b.link} master static`,
        `bridge fdb del ${mac} dev ${b.link} master`,
        new RegExp(`${b.link}|${a.link}`),
        /fdb|forward|port|MAC/i,
      )
    },
  ],
  sysctl: [
    (site) => {
      const name = site.of(['all', 'cni0', 'eth0', 'flannel/1'])
      const key = `net/ipv4/conf/${name}/forwarding`
      return one(
        `${key}=0`,
        site.place.node.ns,
        `echo 0 >/proc/sys/${key.replace('flannel/1', 'flannel.1')}`,
        `echo 1 >/proc/sys/${key.replace('flannel/1', 'flannel.1')}`,
        /forwarding/,
        name === 'all' ? /forward/ : new RegExp(name.replace('/', '.')),
      )
    },
    (site) =>
      one(
        'net.ipv6.conf.all.forwarding=0',
        site.place.node.ns,
        'echo 0 >/proc/sys/net/ipv6/conf/all/forwarding',
        'echo 1 >/proc/sys/net/ipv6/conf/all/forwarding',
        /forwarding/,
      ),
    (site) => {
      const name = site.of(['cni0', 'eth0', 'flannel-v6.1'])
      return one(
        `net.ipv6.conf.${name}.disable_ipv6=1`,
        site.place.node.ns,
        `ip -6 -o addr show dev ${name} scope global | awk '{print $4}' >/run/six.${site.word}; echo 1 >/proc/sys/net/ipv6/conf/${name}/disable_ipv6`,
        `echo 0 >/proc/sys/net/ipv6/conf/${name}/disable_ipv6; for a in $(cat /run/six.${site.word}); do ip addr replace $a dev ${name} nodad; done; ip -6 route replace default via fd00:30::254 dev eth0`,
        name,
      )
    },
    (site) => {
      const name = site.of(['cni0', 'eth0', 'flannel.1'])
      const key = site.of(['arp_ignore=8', 'rp_filter=1', 'arp_filter=1'])
      const [word, value] = key.split('=')
      return one(
        `net.ipv4.conf.${name}.${key}`,
        site.place.node.ns,
        `cat /proc/sys/net/ipv4/conf/${name}/${word} >/run/ctl.${site.word}; echo ${value} >/proc/sys/net/ipv4/conf/${name}/${word}`,
        `cat /run/ctl.${site.word} >/proc/sys/net/ipv4/conf/${name}/${word}`,
        new RegExp(word as string),
      )
    },
  ],
  nft: [
    (site) => nftDrop(site, ['prerouting', 'input', 'forward', 'output', 'postrouting']),
    (site) => nftDrop(site, ['prerouting', 'forward', 'postrouting']),
    (site) => {
      const dev = site.of(['eth0', 'cni0', site.pod.link, 'flannel.1'])
      const family = site.of(FAMILIES)
      const what = `${family === 'v4' ? 'ip' : 'ip6'} ${site.of(['saddr', 'daddr'])} ${site.pod[family]} drop`
      const t = `netdev ${site.word}`
      return one(
        `nft ${t} ingress ${dev}: ${what}`,
        site.place.node.ns,
        nft(`table ${t} { chain c { type filter hook ingress device "${dev}" priority 0; ${what}; }; }`),
        `nft delete table ${t}`,
        site.word,
      )
    },
    (site) => {
      const family = site.of(FAMILIES)
      const [hook, priority] = site.of([
        ['prerouting', -400],
        ['forward', -5],
        ['input', -5],
        ['output', -5],
      ] as const)
      const what = `ether type ${family === 'v4' ? 'ip' : 'ip6'} drop`
      const t = `bridge ${site.word}`
      return one(
        `nft ${t} ${hook}: ${what}`,
        site.place.node.ns,
        nft(`table ${t} { chain c { type filter hook ${hook} priority ${priority}; ${what}; }; }`),
        `nft delete table ${t}`,
        site.word,
      )
    },
    (site) => {
      const family = site.of(FAMILIES)
      const l3 = family === 'v4' ? 'ip' : 'ip6'
      const [hook, priority, action] = site.of([
        ['prerouting', -150, family === 'v4' ? 'ip ttl set 1' : 'ip6 hoplimit set 1'],
        ['prerouting', -310, 'notrack'],
        ['postrouting', -150, family === 'v4' ? 'ip ttl set 0' : 'ip6 hoplimit set 0'],
        ['prerouting', -150, 'meta mark set 0xdead'],
      ] as const)
      const t = `inet ${site.word}`
      return one(
        `nft ${t} ${hook}: ${l3} of pods ${action}`,
        site.place.node.ns,
        nft(
          `table ${t} { chain c { type filter hook ${hook} priority ${priority}; ${l3} saddr ${site.place.subnets[family]} ${action}; }; }`,
        ),
        `nft delete table ${t}`,
        site.word,
      )
    },
    (site) => {
      const family = site.of(FAMILIES)
      const l3 = family === 'v4' ? 'ip' : 'ip6'
      const [hook, action] = site.of([
        ['prerouting', `dnat to ${family === 'v4' ? '192.0.2.9' : '2001:db8::9'}`],
        ['postrouting', `snat to ${family === 'v4' ? '192.0.2.9' : '2001:db8::9'}`],
        ['postrouting', 'masquerade'],
        ['prerouting', 'redirect'],
      ] as const)
      const t = `${l3} ${site.word}`
      return one(
        `nft ${t} ${hook}: pods ${action}`,
        site.place.node.ns,
        nft(
          `table ${t} { chain c { type nat hook ${hook} priority ${hook === 'prerouting' ? -110 : 90}; ${l3} saddr ${site.place.subnets[family]} ${action}; }; }`,
        ),
        `nft delete table ${t}`,
        site.word,
      )
    },
    (site) => {
      const what = site.of([
        'udp dport 8472 drop',
        'ip saddr 172.30.0.0/24 udp dport 8472 drop',
        'ip6 saddr fd00:30::/64 udp dport 8472 drop',
      ])
      const t = `inet ${site.word}`
      const hook = site.of(['prerouting', 'input', 'output', 'postrouting'])
      return one(
        `nft ${t} ${hook}: ${what}`,
        site.place.node.ns,
        nft(`table ${t} { chain c { type filter hook ${hook} priority 0; ${what}; }; }`),
        `nft delete table ${t}`,
        site.word,
      )
    },
    (site) => {
      const family = site.of(FAMILIES)
      const t = `inet ${site.word}`
      const hook = site.of(['input', 'output'])
      const what = `meta nfproto ${family === 'v4' ? 'ipv4' : 'ipv6'} drop`
      return one(
        `in ${site.pod.name}: nft ${t} ${hook}: ${what}`,
        site.pod.ns,
        nft(`table ${t} { chain c { type filter hook ${hook} priority 0; ${what}; }; }`),
        `nft delete table ${t}`,
        site.word,
      )
    },
  ],
  legacy: [
    (site) => {
      const family = site.of(FAMILIES)
      const tool = family === 'v4' ? 'iptables-legacy' : 'ip6tables-legacy'
      const [table, chain] = site.of([
        ['filter', 'FORWARD'],
        ['filter', 'INPUT'],
        ['filter', 'OUTPUT'],
        ['mangle', 'PREROUTING'],
        ['raw', 'PREROUTING'],
        ['mangle', 'POSTROUTING'],
      ] as const)
      const what = site.of([
        `-s ${site.pod[family]}`,
        `-d ${site.pod[family]}`,
        `-s ${site.place.subnets[family]}`,
        '-p udp --dport 8472',
      ])
      return one(
        `${tool} -t ${table} ${chain} ${what} -j DROP`,
        site.place.node.ns,
        `${tool} -t ${table} -I ${chain} ${what} -j DROP`,
        `${tool} -t ${table} -D ${chain} ${what} -j DROP`,
        new RegExp(chain),
        /DROP|drop/,
      )
    },
  ],
  wire: [
    (site) => {
      const family = site.of(FAMILIES)
      const [l3, from, to] =
        family === 'v4' ? ['ip', site.place.v4, site.other.v4] : ['ip6', site.place.v6, site.other.v6]
      const what = site.of([
        `${l3} saddr ${from} ${l3} daddr ${to} drop`,
        `${l3} saddr ${from} udp dport 8472 drop`,
        'udp dport 8472 drop',
        `${l3} saddr ${from} meta length > 1300 drop`,
      ])
      const t = `bridge ${site.word}`
      return {
        ...one(
          `between the nodes: ${what}`,
          site.world.hub,
          nft(`table ${t} { chain c { type filter hook forward priority 0; ${what}; }; }`),
          `nft delete table ${t}`,
          /tunnel|8472|between|wire|size|bytes/,
        ),
        nodes: [0, 1, 2],
      }
    },
  ],
  xfrm: [
    (site) => {
      const family = site.of(FAMILIES)
      const dir = site.of(['in', 'out', 'fwd'])
      const [src, dst] = site.of([
        [site.place.subnets[family], site.other.subnets[family]],
        [site.other.subnets[family], site.place.subnets[family]],
      ])
      return one(
        `xfrm policy ${dir} ${src} → ${dst} block`,
        site.place.node.ns,
        `ip xfrm policy add src ${src} dst ${dst} dir ${dir} action block`,
        `ip xfrm policy del src ${src} dst ${dst} dir ${dir}`,
        /xfrm/,
      )
    },
  ],
}

function nftDrop(site: Site, hooks: readonly string[]): ReturnType<Letter> {
  const family = site.of(FAMILIES)
  const l3 = family === 'v4' ? 'ip' : 'ip6'
  const hook = site.of(hooks)
  const side = site.of(['saddr', 'daddr'])
  const whom = site.of([
    site.pod[family],
    site.place.subnets[family],
    site.other.pods[0][family],
    site.other.subnets[family],
  ])
  const action = site.of([
    'drop',
    'drop',
    `limit rate over 1/minute drop`,
    hook === 'prerouting' || hook === 'postrouting' ? 'drop' : 'reject',
  ])
  const [tableFamily, priority] = [site.of(['inet', l3]), site.of([-160, 0, 10])]
  const t = `${tableFamily} ${site.word}`
  const what = `${l3} ${side} ${whom} ${action}`
  return one(
    `nft ${t} ${hook} ${priority}: ${what}`,
    site.place.node.ns,
    nft(`table ${t} { chain c { type filter hook ${hook} priority ${priority}; ${what}; }; }`),
    `nft delete table ${t}`,
    site.word,
  )
}

function nft(text: string): string {
  return `echo '${text}' | nft -f -`
}

/** Draws the next fault. `serial` makes its names its own. */
export function nextFault(world: World, random: () => number, serial: number): Fault {
  const below = (limit: number) => Math.floor(random() * limit)
  const of = <T>(all: readonly T[]) => all[below(all.length)] as T
  const i = below(3)
  const place = world.places[i] as Place
  const other = of(world.places.filter((one) => one !== place))
  const letters = Object.entries(LETTERS).flatMap(([kind, all]) => all.map((letter) => [kind, letter] as const))
  const [kind, letter] = of(letters)
  const made = letter({ of, below, world, place, i, other, pod: of(place.pods), word: `fw${serial}` })
  return { kind, nodes: [i], ...made }
}
