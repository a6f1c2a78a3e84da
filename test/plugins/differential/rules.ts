import type { Difference } from './compare.ts'
import type { Scene } from './list.ts'

/** Where a difference was met. */
export interface Where {
  readonly scene: Scene
  /** An ADD of the scene was refused by both sides. */
  readonly refused: boolean
  /** The reference is of a release after 1.1.1. */
  readonly newer: boolean
}
/** A wanted difference. Its id begins the row of docs/differences.md that gives the reason. */
export interface Rule {
  readonly id: string
  /** Met only beside a release after 1.1.1, or only beside 1.1.1. */
  readonly only?: 'newer' | 'older'
  /** Met only beside a reference that has this plugin. */
  readonly needs?: string
  /** What it covers. */
  covers(one: Difference, where: Where): boolean
}

/** All of them. */
export const RULES: readonly Rule[] = [
  {
    id: 'engine',
    covers: ({ path, ours }) =>
      /\/node\/nft tables$/.test(path) ||
      (/^(added\/node\/rules about [ab]|(only b|after gc)\/node\/rules about b)$/.test(path) && ours === 'none'),
  },
  {
    id: 'own-files',
    covers: ({ path, theirs }) =>
      theirs === undefined && /\/node\/file (\/run\/cni\/plumb|\/var\/lib\/cni\/[^/]+\/\.plumb)(\/|$)/.test(path),
  },
  {
    id: 'own-files',
    covers: ({ path, theirs, ours }) =>
      /\/node\/file \/run\/cni\/tuning$/.test(path) && theirs === 'd 600' && ours === 'd 755',
  },
  {
    id: 'pool-lock',
    covers: ({ path, theirs, ours }) =>
      /\/node\/file \/var\/lib\/cni\/[^/]+\/[^/]+\/lock$/.test(path) && theirs === 'f 750' && ours === 'f 600',
  },
  {
    id: 'mac',
    covers: ({ path, theirs = '<mac of', ours = '<mac of' }) =>
      [theirs, ours].every((one) => /<mac of|00:00:00:00:00:00|"permanent"/.test(one)) &&
      (/\/dev \S+\/(address|(data|slave)\/(bridge|root)_id|fdb <mac of [^>]*>)$/.test(path) ||
        /^add \w\/[\w-]+\/result\/interfaces\/\d\/mac$/.test(path)),
  },
  // A bridge that was made with an address has no carrier before its first port has one.
  {
    id: 'mac',
    covers: ({ path, ours }) =>
      ours === undefined &&
      /^(added|only b|none)\/node\/dev (br0|cni0)\/(address fe80::\*\|64\/\w+|route 6 (local multicast ff00::\|8|main unicast fe80::\|64) metric 256)$/.test(
        path,
      ),
  },
  {
    id: 'bridge-alias',
    covers: ({ path, theirs, ours }) =>
      theirs === undefined &&
      ours === 'plumb-bridge' &&
      /^(added|only b|none|after gc)\/node\/dev [\w-]+\/ifalias$/.test(path),
  },
  { id: 'host-veth', covers: ({ path }) => /\/node\/dev veth-[ab]\/(ifalias|txqlen)$/.test(path) },
  {
    id: 'port-ipv6',
    covers: ({ path }, { scene }) =>
      (uses(scene, 'bridge') || uses(scene, 'ptp') || uses(scene, 'bandwidth')) &&
      /\/node\/dev (veth-[ab]|ifb-\d)\/(address fe80::\*\|64\/\w+|route 6 (local multicast ff00::\|8|main unicast fe80::\|64) metric 256|fdb 33:33:00:00:00:01|sysctl ipv6\.conf\.(accept_ra|disable_ipv6))$/.test(
        path,
      ),
  },
  {
    id: 'dad',
    covers: ({ path, ours }, { scene }) =>
      (/\/address [0-9a-f:]+\|\d+\/nodad$/.test(path) && ours === 'true') ||
      ((uses(scene, 'ptp') || standsInPod(scene)) && /\/sysctl ipv6\.conf\.accept_dad$/.test(path) && ours === '0'),
  },
  {
    id: 'arp-notify',
    covers: ({ path, ours }, { scene }) =>
      (/\/[ab]\/dev \S+\/sysctl ipv6\.conf\.ndisc_notify$/.test(path) ||
        ((uses(scene, 'ptp') || standsInPod(scene)) && /\/[ab]\/dev \S+\/sysctl ipv4\.conf\.arp_notify$/.test(path))) &&
      ours === '1',
  },
  {
    id: 'pod-alias',
    needs: 'macvlan',
    covers: ({ path }, { scene }) => standsInPod(scene) && /\/[ab]\/dev \S+\/ifalias$/.test(path),
  },
  {
    id: 'pool-dns',
    needs: 'macvlan',
    covers: ({ path, theirs, ours }, { scene }) =>
      standsInPod(scene) &&
      (/^add \w\/\w+\/(result|order)\/dns(\/\w+)?$/.test(path) ||
        (/^add \w\/\w+\/order$/.test(path) && sorted(ours) === sorted(`${theirs} dns`))),
  },
  {
    id: 'ptp-routes',
    covers: ({ path, theirs, ours }, { scene }) =>
      uses(scene, 'ptp') &&
      (/\/[ab]\/dev \S+\/address [^/]+\/noprefixroute$/.test(path) ||
        (/\/[ab]\/dev \S+\/route /.test(path) && ours?.replace('"onlink"', '') === theirs)),
  },
  {
    id: 'mtu-in-result',
    only: 'newer',
    covers: ({ path, theirs, ours }, { scene: { list } }) =>
      list.cniVersion === '1.1.0' &&
      (/\/result\/interfaces\/\d\/mtu$/.test(path) ||
        (/\/order\/interfaces\/\d$/.test(path) && ours?.replace(' mtu', '') === theirs)),
  },
  {
    id: 'loopback-form',
    covers: ({ path }, { scene }) =>
      (scene.list.cniVersion ?? '0.1.0') < '1.0.0' && /^add \w\/loopback\/(order|result)/.test(path),
  },
  {
    id: 'multipath',
    covers: ({ path, theirs = '', ours = '' }, { scene }) =>
      scene.name.startsWith('two gateways') &&
      /\/[ab]\/(dev \S+\/)?route 4 /.test(path) &&
      `${theirs}${ours}`.includes('gateway'),
  },
  {
    id: 'route-mtu',
    only: 'newer',
    covers: ({ path, theirs, ours }) =>
      /\/[ab]\/dev \S+\/route /.test(path) && ours?.replace(/"metrics":\[\{[^\]]*\}\],/, '') === theirs,
  },
  {
    id: 'on-link',
    covers: ({ path, theirs, ours }) =>
      /\/[ab]\/dev \S+\/route 4 /.test(path) &&
      !theirs?.includes('gateway') &&
      ours?.replace(/"metrics":\[\{[^\]]*\}\],/, '').replace('"scope":"link"', '"scope":"global"') === theirs,
  },
  {
    id: 'default-twice',
    covers: ({ path, theirs, ours }) =>
      path.startsWith('add ') &&
      /^refuses with 999: failed to add route .*: file exists$/.test(theirs ?? '') &&
      ours === 'works',
  },
  {
    id: 'args-shared',
    covers: ({ path, theirs, ours }, { scene: { args } }) =>
      path.startsWith('add ') &&
      /^refuses with 999: ARGS: unknown args /.test(theirs ?? '') &&
      ours === 'works' &&
      /MAC=|IP=/.test(JSON.stringify(args)),
  },
  {
    id: 'two-gateways',
    covers: ({ path, theirs, ours }) =>
      path.startsWith('add ') && /already has an IP address different from/.test(theirs ?? '') && ours === 'works',
  },
  {
    id: 'two-gateways',
    covers: ({ path, theirs }, { scene }) =>
      severalOfFour(scene) &&
      /forceaddress/i.test(JSON.stringify(scene)) &&
      theirs !== 'works' &&
      (/\/node\/dev \S+\/(address|order of inet|route 4 )/.test(path) ||
        path.startsWith('packets') ||
        /route_localnet$/.test(path)),
  },
  {
    id: 'masquerade-of-two',
    covers: ({ path, theirs, ours }, { scene }) =>
      severalOfFour(scene) &&
      ((/^packets[^/]*\/[ab] → [ab] 4 #2 /.test(path) && sameOrNone(theirs, ours)) ||
        (/^del \w( again)?\//.test(path) &&
          /CHAIN_DEL failed|Chain '[^']*' does not exist/.test(theirs ?? '') &&
          ours === 'works') ||
        (/^(only b|none)\/node\/rules about [ab]$/.test(path) && theirs === 'some' && ours === 'none')),
  },
  {
    id: 'macspoofchk',
    covers: ({ path }, { scene }) =>
      /macspoofchk/i.test(JSON.stringify(scene)) &&
      /\/node\/dev veth-[ab]\/(slave\/locked|fdb (<mac of [ab]:\w+>|[0-9a-f:]{17}))$/.test(path),
  },
  {
    id: 'pairs',
    covers: ({ path, theirs, ours }) =>
      path.startsWith('add ') && /too small to allocate from$/.test(theirs ?? '') && ours === 'works',
  },
  {
    id: 'ptp-without-pool',
    covers: ({ path, theirs, ours }) =>
      /^add \w\/ptp$/.test(path) && theirs === 'refuses with 999: no plugin name provided' && ours === 'works',
  },
  // A pool that names no gateway: upstream adds the route to it all the same.
  {
    id: 'ptp-without-pool',
    covers: ({ path, theirs, ours }) =>
      /^add \w\/ptp$/.test(path) &&
      /^refuses with 999: failed to add route \{.* Gw: <nil> .*invalid argument$/.test(theirs ?? '') &&
      ours === 'works',
  },
  {
    id: 'port-owners',
    covers: ({ path, theirs, ours }) =>
      /^add \w\/portmap$/.test(path) &&
      theirs === 'works' &&
      /^refuses with 7: Cannot give host port /.test(ours ?? ''),
  },
  {
    id: 'conditions',
    covers: ({ path, theirs, ours }) =>
      /^add \w\/portmap$/.test(path) &&
      theirs === 'works' &&
      /^refuses with 7: Cannot read conditionsV4 .*iptables' syntax/.test(ours ?? ''),
  },
  {
    id: 'gc-status',
    only: 'newer',
    covers: ({ path, theirs, ours }) =>
      (path.startsWith('status/') && theirs === 'works' && /^refuses with 50: /.test(ours ?? '')) ||
      (path.startsWith('after gc/') && (ours === undefined || /\/(flags|operstate)$/.test(path))),
  },
  {
    id: 'static-check',
    covers: ({ path, theirs, ours }, { scene }) =>
      scene.atCheck !== undefined &&
      path.startsWith('check ') &&
      theirs === 'works' &&
      /it is not in the result of ADD/.test(ours ?? ''),
  },
  {
    id: 'static-gateway',
    covers: ({ path, theirs, ours }, { scene }) =>
      /GATEWAY=/.test(JSON.stringify(scene.args)) &&
      ((/^add \w\/bridge\/(result\/ips\/\d\/gateway|order\/ips\/\d)$/.test(path) &&
        (theirs === undefined || sorted(ours) === sorted(`${theirs} gateway`))) ||
        (/^packets[^/]*\/[ab] → gateway /.test(path) && theirs === undefined)),
  },
  {
    id: 'static-family',
    covers: ({ path, theirs, ours }) =>
      path.startsWith('add ') &&
      theirs === 'works' &&
      /^refuses with 7: Cannot read ipam\.addresses\[\d\] gateway .*: want an address of the family of/.test(
        ours ?? '',
      ),
  },
  {
    id: 'static-empty',
    covers: ({ path, theirs, ours }) =>
      path.startsWith('add ') &&
      /^refuses with 999: .* NOT in CIDR notation, got: ''$/.test(theirs ?? '') &&
      ours === 'works',
  },
  {
    id: 'check',
    covers: ({ path, theirs, ours }) =>
      path.startsWith('check ') && theirs?.startsWith('refuses') === true && ours === 'works',
  },
  {
    id: 'self',
    covers: ({ path, theirs, ours }) =>
      /\/slave\/hairpin$/.test(path) ||
      (/^packets[^/]*\/([ab]) → host port \S+ of \1 at /.test(path) && sameOrNone(theirs, ours)),
  },
  {
    id: 'nft-neighbours',
    only: 'newer',
    covers: ({ path, theirs, ours }, { scene }) =>
      /"nftables"/.test(JSON.stringify(scene)) &&
      /^packets[^/]*\/(a → host port \S+ of b|b → host port \S+ of a) at /.test(path) &&
      sameOrNone(theirs, ours),
  },
  {
    id: 'route-localnet',
    covers: ({ path, theirs, ours }) =>
      /\/node\/dev \S+\/sysctl ipv4\.conf\.route_localnet$/.test(path) && theirs === undefined && ours === '1',
  },
  {
    id: 'del-leaks',
    covers: ({ path, ours }, { scene: { del } }) =>
      lacks(del) && ours === undefined && /^(only b|none)\/(node\/dev veth-a|a\/dev \S+)\/there$/.test(path),
  },
  {
    id: 'del-leaks',
    covers: ({ path, theirs, ours }, { scene: { del } }) =>
      lacks(del) && theirs === 'some' && ours === 'none' && /^(only b|none)\/node\/rules about a$/.test(path),
  },
  {
    id: 'del-leaks',
    covers: ({ path }, { scene: { del } }) =>
      lacks(del) &&
      /^(only b|none)\/node\/dev \S+\/(flags|operstate|mtu|promiscuity|sysctl ipv6\.conf\.mtu)$/.test(path),
  },
  {
    id: 'del-leaks',
    covers: ({ path, ours }, { scene: { del } }) =>
      lacks(del) && ours === undefined && /^(only b|none)\/node\/file \/run\/cni\/tuning\/pod-a_eth0\.json$/.test(path),
  },
  {
    id: 'del-refused',
    covers: ({ path, theirs, ours }, { refused }) =>
      refused && path.startsWith('del ') && theirs?.startsWith('refuses with 999: ') === true && ours === 'works',
  },
  {
    id: 'failed-add',
    covers: ({ path, ours }, { refused }) =>
      refused &&
      (/^(added|only b|none)\/(node\/dev (br0|cni0)\/|node\/file \/var\/lib\/cni\/networks(\/[\w-]+(\/lock|\/last_reserved_ip\.\d)?)?$)/.test(
        path,
      ) ||
        (/^(added|only b|none)\/(node|[ab])\/dev \S+\/there$/.test(path) && ours === undefined) ||
        // What follows from switching the node's forwarding on.
        /^(added|only b|none)\/node\/(dev \S+\/)?(sysctl ipv[46]\.(conf\.(all\.|default\.)?(forwarding|accept_redirects)|ip_forward)|fdb 33:33:00:00:00:02|route 6 local anycast \S+ metric 0)$/.test(
          path,
        )),
  },
  {
    id: 'release-1.1.1',
    only: 'older',
    covers: ({ path, theirs, ours }) =>
      (/\/order(\/[\w/]+)?$/.test(path) &&
        sorted(theirs?.replace(/ dns$/, '')) === sorted(ours?.replace(/ dns\b/, ''))) ||
      (/\/(order|result)\/dns(\/\w+)?$/.test(path) && !theirs) ||
      (/\/[ab]\/dev \S+\/(txqlen|sysctl ipv6\.conf\.keep_addr_on_down)$/.test(path) && theirs === undefined) ||
      (/\/node\/file \/var\/lib\/cni\/\w+\/[\w-]+\//.test(path) && theirs?.replace('f 644', 'f 600') === ours),
  },
  {
    id: 'codes',
    covers: ({ path, theirs, ours }) => /\/code$/.test(path) && theirs !== undefined && ours !== undefined,
  },
]

/** The rule that wants a difference, undefined when none does. */
export function wantedBy(one: Difference, where: Where): Rule | undefined {
  return RULES.find((rule) => appliesTo(rule, where.newer) && rule.covers(one, where))
}

/** Whether a rule is for a reference of this kind. */
export function appliesTo({ only }: Rule, newer: boolean): boolean {
  return only === undefined || (only === 'newer') === newer
}

function sorted(words = ''): string {
  return words.split(' ').sort().join(' ')
}

/** Whether the reference has no answer, or one of the same server, which sees another client. */
function sameOrNone(theirs = '', ours = ''): boolean {
  return theirs === 'none' || theirs.split(' ')[0] === ours.split(' ')[0]
}

function uses({ list }: Scene, type: string): boolean {
  return list.plugins.some((one) => one.type === type)
}

/** Whether its first plugin makes a link with nothing on the node. */
function standsInPod({ list }: Scene): boolean {
  return ['macvlan', 'ipvlan', 'vlan', 'dummy', 'tap'].includes(list.plugins[0]?.type ?? '')
}

function lacks(del: Scene['del']): boolean {
  return del === 'empty' || del === 'gone'
}

/** Whether a pod gets several IPv4 addresses, or pods of one network get theirs from several subnets. */
function severalOfFour(scene: Scene): boolean {
  return (
    new Set([...JSON.stringify(scene).matchAll(/"subnet":"(\d+\.\d+\.\d+\.\d+\/\d+)"/gi)].map(([, subnet]) => subnet))
      .size > 1
  )
}
