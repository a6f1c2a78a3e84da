import { readFileSync } from 'node:fs'
import { isIP } from 'node:net'
import { join } from 'node:path'

/**
 * The strings that a case put into environment and configuration: a name or path in a command has to be one of them, or
 * one that plumb makes.
 */
export type Given = ReadonlySet<string>

/** The rules, which are loaded as they stand in their files. */
const RULES = ['sets', 'masquerade', 'host-ports', 'firewall', 'gateways'].map((name) =>
  readFileSync(join(import.meta.dir, `../../lib/nft/${name}.nft`), 'utf8'),
)
// `[…]` may be missing, `{…}` comes once or more, `<…>` is a value: checked below, apart from lib/'s own parsers.
const LINES: Readonly<Record<'ip' | 'bridge' | 'nft' | 'conntrack' | 'iptables' | 'tc', readonly string[]>> = {
  ip: [
    'addr show dev <name>',
    'addr replace <cidr>[ nodad][ brd +] dev <name>[ scope link][ noprefixroute]',
    'addr delete <cidr> dev <name>',
    'link add name <name>[ address <mac>][ mtu <number>][ up][ promisc on] type bridge[ vlan_filtering 1]',
    'link add name <name>[ address <mac>][ mtu <number>][ up][ master <name>] type veth peer name <name>[ address <mac>][ mtu <number>][ netns <path>]',
    'link set dev <name> up[ promisc on]',
    'link set dev <name>[ alias <alias>][ type bridge_slave[ hairpin on][ isolated on][ locked on]]',
    // A device to the pod, and back.
    'link set dev <name>[ address <mac>][ mtu <number>] name <name>[ alias <lent>][ netns <path>][ up]',
    'link set dev lo down',
    'link set dev <name>[ address <mac>][ mtu <number>][ txqueuelen <number>][ promisc <switch>][ allmulticast <switch>][ master <name>]',
    'link set dev <name> nomaster',
    'link add name <name> up type vrf table <number>',
    'link add[ link <name>] name <name>[ address <mac>][ mtu <number>][ netns <path>] type <podkind>[ mode <mode>][ bcqueuelen <number>][ id <number>]',
    'tuntap add mode tap name <name>[ vnet_hdr][ multi_queue][ user <number>][ group <number>]',
    'link set dev <name> address <mac>[ mtu <number>]',
    'link set dev <name>[ address <mac>] alias <alias> name <name>',
    'link set dev <name>[ master <name>] up',
    'link add name <name> address <mac>[ mtu <number>] txqueuelen 0 up type ifb',
    'link delete dev <name>',
    'link set dev <name> group <number>',
    'link delete group <number>',
    'route prepend <cidr>[ table <number>][ metric <number>][ scope <number>][ mtu <number>][ advmss <number>][ via <ip>] dev <name>[ onlink]',
    'route prepend <cidr>[ table <number>][ metric <number>][ scope <number>][ mtu <number>][ advmss <number>]{ nexthop via <ip> dev <name>[ onlink]}',
    // A pod's way to its gateway, and the node's to the pod (ptp).
    'route append <cidr>[ scope <number>] src <ip>[ via <ip>] dev <name>',
    'route add <cidr>[ scope <number>] dev <name>',
    'route show exact <cidr> table <number>',
    'route add <cidr> table <number>[ metric <number>][ via <ip>] dev <name>',
    'route prepend <cidr>[ scope <number>] src <ip> dev <name>',
    'route delete <cidr>[ table <number>][ metric <number>][ scope <number>][ src <ip>][ via <ip>] dev <name>',
    'rule add from <cidr> table <number> priority <number>',
    'rule delete from <cidr> table <number> priority <number>',
  ],
  bridge: [
    'fdb replace <mac> dev <name> master static sticky',
    'fdb show dev <name>',
    'vlan add vid <range>[ pvid untagged] dev <name>',
    'vlan delete vid <range> dev <name>',
    'vlan show dev <name>',
  ],
  nft: [
    'add table inet plumb',
    'flush chain inet plumb <own>',
    'delete chain inet plumb <own>',
    'delete set inet plumb <mark>',
    'add set inet plumb <mark> { type mark; }',
    'add element inet plumb <mark> { 1 }',
    'add element inet plumb <masq> { <ip> comment "<pair>" }',
    'delete element inet plumb <masq> { <ip> }',
    'get element inet plumb <masq> { <ip> }',
    'add element inet plumb gateways4 { <ip> comment "<owner>" }',
    'delete element inet plumb gateways4 { <ip> }',
    'get element inet plumb gateways4 { <ip> }',
    'add element inet plumb <set> { <cidr> . <cidr> comment "<owner>" }',
    'delete element inet plumb <set> { <cidr> . <cidr> }',
    'get element inet plumb <set> { <cidr> . <cidr> }',
    'add element inet plumb <ports> {[ <ip> .] <protocol> . <port> comment "<pair>" : <ip> . <port> }',
    'add element inet plumb <conditional> {[ <ip> .] <protocol> . <port> comment "<pair>" : jump <chain> }',
    'add element inet plumb <target> { <protocol> . <ip> . <port> comment "<pair>" }',
    'add element inet plumb <self> { <ip> . <ip> comment "<pair>" }',
    'add element inet plumb given { <port> timeout 1s expires 1s comment "<pair>" }',
    'add element inet plumb <left> { <ip> . <port> timeout 1s expires 1s comment "<pair>" }',
    'delete element inet plumb <self> { <ip> . <ip> }',
    'get element inet plumb <self> { <ip> . <ip> }',
    'delete element inet plumb <places> {[ <ip> .] <protocol> . <port> }',
    'delete element inet plumb <target> { <protocol> . <ip> . <port> }',
    'get element inet plumb <places> {[ <ip> .] <protocol> . <port> }',
    'get element inet plumb <target> { <protocol> . <ip> . <port> }',
    'add chain inet plumb <chain>',
    'flush chain inet plumb <chain>',
    'delete chain inet plumb <chain>',
    'list chain inet plumb <chain>',
    'add element inet plumb <pods> { <ip> comment "<pair>"[ : jump <admin>] }',
    'delete element inet plumb <pods> { <ip> }',
    'get element inet plumb <pods> { <ip> }',
    'add element inet plumb <bridges> { "<bridge>"[ . "<bridge>"] comment "<owner>" }',
    'delete element inet plumb <bridges> { "<bridge>"[ . "<bridge>"] }',
    'get element inet plumb <bridges> { "<bridge>"[ . "<bridge>"] }',
    'add chain inet plumb <admin>',
    'list chain inet plumb <admin>',
    'add rule inet plumb <chain> <match> dnat <family> to <family> daddr . meta l4proto . th dport map @<ports>',
    'add rule inet plumb <chain> <match> dnat <family> to meta l4proto . th dport map @<ports>',
  ],
  tc: [
    'qdisc add dev <name> root handle 504c: tbf rate <big>bit burst <number> limit <big>[ peakrate <big>bit mtu <number>]',
    'qdisc change dev <name> root handle 504c: tbf rate <big>bit burst <number> limit <big>[ peakrate <big>bit mtu <number>]',
    'qdisc delete dev <name> root handle 504c:',
    'qdisc add dev <name> clsact',
    'filter add dev <name> ingress protocol all pref 20556 u32 match u32 0 0 action mirred egress redirect dev <name>',
    'filter delete dev <name> ingress protocol all pref 20556',
    'qdisc show dev <name>',
    'filter show dev <name> ingress',
  ],
  iptables: [
    '*filter',
    ':<table> - <counts>',
    '-A PLUMB-PODS -j <admin>',
    '-I PLUMB-PODS 1 -j <admin>',
    '-A PLUMB-PODS -m mark --mark 0x1000/0x1000 -j ACCEPT',
    '-I FORWARD 1 -j PLUMB-PODS',
    'COMMIT',
  ],
  conntrack: [
    '-D -f <version> -p udp[ --orig-dst <ip>] --orig-port-dst <port> --reply-src <ip>',
    '-D -f <version> -p udp --orig-src <ip> --orig-dst <ip> --orig-port-src <port> --orig-port-dst <port>',
  ],
}
// Programs and their arguments; `-` says that lines follow on standard input.
const ARGV = [
  'ip[ -6] -batch -',
  'ip -d -j -batch -',
  'ip[ -6] -d -j -force -batch -',
  'bridge -batch -',
  'bridge -d -j -force -batch -',
  'nft -f -',
  'ip -d -j addr show[ dev <name>]',
  'ip -j addr show dev <name>',
  'ip link delete dev <name>',
  'nft list tables',
  'nft list set inet plumb <set>',
  'tc -batch -',
  'tc -d -j -force -batch -',
  'ip[6]tables-nft-restore --noflush --wait',
  'conntrack -L -f <version> -p udp[ --orig-port-dst <port>]',
  'conntrack -L -f <version> -p udp[ --orig-port-src <port>]',
  'conntrack -R -',
  // Where that is too old, each line by itself.
  ...LINES.conntrack.map((line) => `conntrack ${line}`),
]
const VALUES: Readonly<Record<string, (text: string, given: Given) => boolean>> = {
  name: (text, given) =>
    wellNamed(text) &&
    (/^(veth[0-9a-f]{11}|bwp[0-9a-f]{12}|plumb[0-9a-f]{10}|lo|minicni0|cni0(\.\d{1,4})?)$/.test(text) ||
      given.has(text) ||
      given.has(text.replace(/\.\d{1,4}$/, ''))),
  podkind: (text) => /^(macvlan|ipvlan|vlan|dummy)$/.test(text),
  mode: (text) => /^(bridge|private|vepa|passthru|l2|l3|l3s)$/.test(text),
  mac: (text) => /^([0-9a-f]{2}:){5}[0-9a-f]{2}$/.test(text) && (Number.parseInt(text, 16) & 1) === 0,
  cidr: (text) => /^[^/]+\/\d{1,3}$/.test(text) && wide(text),
  ip: (text) => isIP(text) !== 0,
  switch: (text) => /^(on|off)$/.test(text),
  number: (text) => /^(0|[1-9]\d{0,9})$/.test(text) && Number(text) < 2 ** 32,
  range: (text) =>
    /^\d{1,4}(-\d{1,4})?$/.test(text) && text.split('-').every((one) => Number(one) >= 1 && Number(one) <= 4094),
  path: (text, given) => (given.has(text) || text === `/proc/${process.pid}/ns/net`) && Buffer.byteLength(text) <= 4095,
  // Of a pod's link, and of a bridge.
  alias: (text) =>
    text === 'plumb-bridge' ||
    (/^plumb\/[\w.+-]{1,100}\/[\w.+-]{1,100}\/[^/]+$/.test(text) && Buffer.byteLength(text) <= 255),
  lent: (text) => text === '""' || (/^[\w.:/@+-]+$/.test(text) && Buffer.byteLength(text) <= 255),
  agent: (text) => /^plumb-agent\/[\w.+-]{1,100}$/.test(text),
  learning: (text) => /^(no)?learning$/.test(text),
  owner: (text) => /^[\w.+-]{1,100}$/.test(text),
  masq: (text) => /^masq[46]$/.test(text),
  set: (text) => /^local[46]$/.test(text),
  mark: (text) => /^rules_(masquerade|ports|firewall|gateways)_[0-9a-f]{16}$/.test(text),
  own: (text) => /^[a-z]+$/.test(text),
  protocol: (text) => /^(tcp|udp|sctp)$/.test(text),
  port: (text) => /^[1-9]\d{0,4}$/.test(text) && Number(text) <= 65_535,
  ports: (text) => /^ports[46](at)?(if)?$/.test(text),
  conditional: (text) => /^conditional[46](at)?$/.test(text),
  places: (text) => /^(ports[46](at)?(if)?|conditional[46](at)?)$/.test(text),
  target: (text) => /^(snat|masqall)[46]$/.test(text),
  left: (text) => /^left[46]$/.test(text),
  self: (text) => /^self[46]$/.test(text),
  // A record may name one that the call does not.
  bridge: (text) => wellNamed(text),
  big: (text) => /^[1-9]\d{0,16}$/.test(text),
  counts: (text) => text === '[0:0]',
  pods: (text) => /^(pods|admin)[46]$/.test(text),
  bridges: (text) => /^(isolating|together|apart)$/.test(text),
  admin: (text) => /^[A-Za-z_][\w.-]{0,27}$/.test(text) && !/^[a-z]+$/.test(text),
  table: (text) => /^[A-Za-z_][\w.-]{0,27}$/.test(text) && !/^(INPUT|OUTPUT|FORWARD|ACCEPT|DROP|RETURN)$/.test(text),
  pair: (text) => /^[\w.+-]{1,50}\/[\w.+-]{1,70}$/.test(text),
  chain: (text) => /^cond[46]_[0-9a-f]{1,16}$/.test(text),
  family: (text) => /^ip6?$/.test(text),
  version: (text) => /^ipv[46]$/.test(text),
  // The user's own words, which must not end the rule, or hide its end.
  match: (text) => /^[^;#\\$\p{Cc}]+$/u.test(text) && text.split('"').length % 2 === 1,
}
const forms = {
  ip: LINES.ip.map(compile),
  bridge: LINES.bridge.map(compile),
  nft: LINES.nft.map(compile),
  iptables: LINES.iptables.map(compile),
  tc: LINES.tc.map(compile),
  conntrack: LINES.conntrack.map(compile),
  argv: ARGV.map(compile),
}

/** What in a call of a tool is not in the grammar of what plumb says to tools: one sentence each, none when all is. */
export function strangeIn(argv: readonly string[], stdin: string, ns: string, given: Given): string[] {
  const strange: string[] = []
  if (ns !== 'host' && !given.has(ns)) strange.push(`namespace ${JSON.stringify(ns)} was given by nobody`)
  if (argv.some((word) => /\s/.test(word)) || !forms.argv.some((form) => fits(form, argv.join(' '), given)))
    strange.push(`argv ${JSON.stringify(argv)}`)
  const tool = (argv[0]?.replace(/^ip6?tables-nft-restore$/, 'iptables') ?? '') as keyof typeof LINES
  if (argv.at(-1) !== '-' && tool !== 'iptables')
    return stdin === ''
      ? strange
      : [...strange, `${argv.join(' ')} reads no standard input, but got ${JSON.stringify(stdin)}`]
  if (stdin !== '' && !stdin.endsWith('\n'))
    strange.push(`the last line has no end: ${JSON.stringify(stdin.slice(-80))}`)
  const text = tool === 'nft' ? RULES.reduce((rest, rules) => rest.replace(rules, ''), stdin) : stdin
  for (const line of text.split('\n'))
    if (line !== '' && !forms[tool].some((form) => fits(form, line, given)))
      strange.push(`line ${JSON.stringify(line.slice(0, 300))}`)
  return strange
}

/** Judges lines by a grammar of their own, in the words of this one. */
export function matcher(lines: readonly string[]): (line: string, given: Given) => boolean {
  const own = lines.map(compile)
  return (line, given) => own.some((form) => fits(form, line, given))
}

interface Form {
  readonly pattern: RegExp
  readonly kinds: readonly string[]
}

function compile(text: string): Form {
  const kinds: string[] = []
  // In nft's lines braces and brackets are what nft itself wants, except the one option they have.
  const nft = text.includes('inet plumb')
  const pattern = text.replace(/<(\w+)>|[[\]{}.+*?$^()|\\]/g, (token, kind: string | undefined) => {
    if (kind !== undefined) {
      kinds.push(kind)
      return kind === 'match' ? '(.+?)' : '(\\S+?)'
    }
    if (token === '[') return '(?:'
    if (token === ']') return ')?'
    if (!nft && token === '{') return '((?:'
    if (!nft && token === '}') return ')+)'
    return `\\${token}`
  })
  return { pattern: new RegExp(`^${pattern}$`, 'u'), kinds }
}

function fits({ pattern, kinds }: Form, text: string, given: Given): boolean {
  const found = pattern.exec(text)
  if (!found) return false
  const repeated = found.findIndex((group, i) => i > 0 && group?.startsWith(' nexthop '))
  const hops = repeated > 0 ? (found[repeated] as string).split(' nexthop ').slice(1) : []
  // Behind the repeated part there is nothing more, and in it is what `hops` has.
  const single = repeated > 0 ? kinds.slice(0, repeated - 1) : kinds
  return (
    hops.every(
      (hop) =>
        /^via \S+ dev \S+( onlink)?$/.test(hop) &&
        isIP(hop.split(' ')[1] as string) !== 0 &&
        wellNamed(hop.split(' ')[3] as string),
    ) && single.every((kind, i) => found[i + 1] === undefined || VALUES[kind]?.(found[i + 1] as string, given) === true)
  )
}

// dev_valid_name, and nothing that a batch line would take apart. `%` makes the kernel choose a name of its own.
function wellNamed(text: string): boolean {
  return Buffer.byteLength(text) <= 15 && !/[/:\s%#"'\\\p{Cc}\p{Z}]/u.test(text) && !['', '.', '..'].includes(text)
}

function wide(cidr: string): boolean {
  const [ip = '', length = ''] = cidr.split('/')
  return (isIP(ip) === 4 && Number(length) <= 32) || (isIP(ip) === 6 && Number(length) <= 128)
}
