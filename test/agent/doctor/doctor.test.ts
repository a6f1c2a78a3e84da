// lane: quick
// Tests agent/doctor: pure detection over facts.
import assert from 'node:assert/strict'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Check } from '../../../agent/doctor/check.ts'
import { CHECKS } from '../../../agent/doctor/checks/index.ts'
import { AGENT_CHECKS, examine } from '../../../agent/doctor/doctor.ts'
import { grown } from '../../../agent/doctor/facts/counters.ts'
import { NotRead } from '../../../agent/doctor/facts/facts.ts'
import { FACTS, type Facts } from '../../../agent/doctor/facts/index.ts'
import type { Link } from '../../../agent/doctor/facts/links.ts'
import { readLists } from '../../../agent/doctor/facts/lists.ts'
import { factsOfAgent } from '../../../agent/doctor/facts/of-agent.ts'
import type { Chain } from '../../../agent/doctor/facts/ruleset.ts'
import { ofContainerd, ofCrio, type Runtime } from '../../../agent/doctor/facts/runtimes.ts'
import { readSubnetFile } from '../../../agent/doctor/facts/subnet-file.ts'
import { shellWord } from '../../../agent/doctor/shell.ts'
import type { ServiceView } from '../../../agent/services/view.ts'
import { sentenceOf } from '../../../agent/state/phrases.ts'
import type { Status } from '../../../agent/state/status.ts'
import { reportText } from '../../../cli/doctor.ts'
import { COLLECTORS, type Scene } from '../../../cli/sysdump/collectors.ts'
import { listFiles } from '../../../lib/os/reading.ts'
import { parseNetwork } from '../../../lib/runtime/network-list.ts'
import { type Cidr, type Ip, parseCidr } from '../../../lib/text/ip.ts'
import type { Mac, NetnsPath } from '../../../lib/text/values.ts'
import { scripted } from '../../support/scripted.ts'

const LIST = JSON.stringify({ cniVersion: '1.0.0', name: 'cbr0', plugins: [{ type: 'flannel' }] })

function link(name: string, kind: string, more: Partial<Link> & { cidrs?: readonly string[] } = {}): Link {
  const { cidrs = [], ...rest } = more
  const addresses = cidrs.map((cidr) => ({
    cidr: cidr as Cidr,
    ip: cidr.split('/')[0] as Ip,
    isLinkLocal: cidr.startsWith('fe80'),
  }))
  return { name, kind, mtu: 1500, isUp: true, hasCarrier: true, addresses, ...rest }
}

const [NOW, DAY] = [Date.parse('2026-03-01T00:00:00Z'), 86_400_000]
const KUBELET = '/var/lib/kubelet/pki/kubelet-client-current.pem'

const RESOLVED = '/run/systemd/resolve/resolv.conf'

function service(key: string, at: string, ...endpoints: readonly string[]): ServiceView {
  const [namespace = '', name = ''] = key.split('/')
  const all = endpoints.map((address) => ({ address, isLocal: true }))
  return { namespace, name, notes: [], ports: [{ name: '', addresses: [at], endpoints: all }] }
}
const WEB = service('x/web', '10.96.0.1:80/TCP', '10.64.0.2:8080')

function containerd(more: Partial<Runtime> = {}): Runtime {
  const folders = { confDir: '/etc/cni/net.d', binDirs: ['/opt/cni/bin'], networks: ['cbr0'] }
  return { name: 'containerd', pid: 5, version: '1.7.24', ...folders, ...more }
}

function matching(left: object, right: unknown): { readonly match: object } {
  return { match: { op: '==', left, right } }
}

/** A node with one pod of both families, by vxlan. Nothing is wrong with it. */
function healthy(more: Partial<Facts> & { sysctls?: Readonly<Record<string, string>> } = {}): Facts {
  const { sysctls = {}, ...rest } = more
  const values: Readonly<Record<string, string>> = {
    'ipv4/ip_forward': '1',
    'ipv6/conf/all/forwarding': '1',
    'bridge/bridge-nf-call-iptables': '1',
    'bridge/bridge-nf-call-ip6tables': '1',
    'netfilter/nf_conntrack_count': '100',
    'netfilter/nf_conntrack_max': '262144',
    'ipv4/ip_local_port_range': '32768\t60999',
    'ipv4/neigh/default/gc_thresh3': '1024',
    'ipv6/neigh/default/gc_thresh3': '1024',
    ...sysctls,
  }
  const status: Status = {
    ...scripted().status(),
    network: { v4: parseCidr('10.64.0.0/12'), v6: parseCidr('fd00:64::/48') },
    subnets: { v4: parseCidr('10.64.0.0/24'), v6: parseCidr('fd00:64::/64') },
  }
  return {
    sysctl: (name) => values[name],
    uncountedNeighbours: () => 0,
    links: [
      link('eth0', '', { cidrs: ['192.0.2.1/24', 'fe80::1/64'] }),
      link('cni0', 'bridge', { mtu: 1450, cidrs: ['10.64.0.1/24', 'fd00:64::1/64'] }),
      link('veth1', 'veth', { mtu: 1450, master: 'cni0' }),
      link('flannel.1', 'vxlan', { mtu: 1450, cidrs: ['10.64.0.0/32'], vxlan: { vni: 1, port: 8472 } }),
    ],
    routes: [],
    rules: [
      { family: 4, priority: 0, table: 'local', text: 'from all lookup local' },
      { family: 4, priority: 32_766, table: 'main', text: 'from all lookup main' },
    ],
    ruleset: { chains: [] },
    legacyRules: [],
    configurations: [],
    reach: new Map(),
    counters: grown(new Map(), new Map(), 1000),
    pods: [
      {
        netns: '/run/netns/a' as NetnsPath,
        container: 'abc',
        ifname: 'eth0',
        ips: ['10.64.0.2' as Ip, 'fd00:64::2' as Ip],
        link: 'veth1',
        hostPorts: [],
      },
    ],
    processes: [{ pid: 1, name: 'systemd', argv: ['/sbin/init'] }],
    services: [service('kube-system/kube-dns', '10.96.0.10:53/UDP', '10.64.0.9:53'), WEB],
    unheard: [],
    nameless: [],
    resolver: { path: RESOLVED, kubelet: '/var/lib/kubelet/config.yaml', servers: ['192.0.2.53'] },
    nft: { version: '1.0.6', tables: [] },
    runtimes: [containerd()],
    listeners: [{ protocol: 'tcp', ip: '0.0.0.0', port: 22, name: 'sshd', pid: 9 }],
    twins: [],
    certificates: [{ path: KUBELET, from: NOW - 180 * DAY, until: NOW + 180 * DAY }],
    now: NOW,
    pools: [{ network: 'cbr0', subnets: [parseCidr('10.64.0.0/24')], size: 253, taken: 1, left: 0 }],
    disks: [{ path: '/run/cni/plumb', of: 'plugins', mount: '/run', freeBytes: 1e9, freeFiles: 1e5 }],
    subnetFile: {
      path: '/run/flannel/subnet.env',
      isThere: true,
      env: {
        networks: [parseCidr('10.64.0.0/12'), parseCidr('fd00:64::/48')],
        subnets: [parseCidr('10.64.0.0/24'), parseCidr('fd00:64::/64')],
        mtu: 1450,
        ipMasq: true,
      },
    },
    lists: {
      dir: '/etc/cni/net.d',
      files: [{ path: '/etc/cni/net.d/10-flannel.conflist', list: parseNetwork(LIST, 'LIST') }],
      binDirs: ['/opt/cni/bin'],
      plugins: ['flannel', 'bridge', 'host-local'].map((type) => ({
        type,
        path: `/opt/cni/bin/${type}`,
        isExecutable: true,
        machine: process.arch === 'x64' ? 'x86_64' : 'aarch64',
      })),
    },
    agent: status,
    status,
    network: {
      networks: [parseCidr('10.64.0.0/12')],
      subnets: [parseCidr('10.64.0.0/24'), parseCidr('fd00:64::/64')],
      mtu: 1450,
    },
    ...rest,
  }
}

const grew = (name: string, by: number) => grown(new Map(), new Map([[name, by]]), 1000)
const withStatus = (more: Partial<Status>): Partial<Facts> => {
  const status = { ...(healthy().status as Status), ...more }
  return { agent: status, status }
}
const services = {
  services: 1,
  frontends: 1,
  endpoints: 1,
  programming: { count: 0, sum: 0, buckets: [] },
  forgotten: 0,
  sync: { took: { count: 0, sum: 0, buckets: [] }, services: 0, slices: 0 },
}
const chain = (more: Partial<Chain>): Chain => ({
  family: 'ip',
  table: 'filter',
  name: 'FORWARD',
  hook: 'forward',
  type: 'filter',
  policy: 'accept',
  rules: [],
  ...more,
})
const [peer] = (healthy().status as Status).peers

/** The node with one peer in this state of its probes. */
const withPeer = (state: 'answers' | 'silent' | 'narrow', routeMtu?: { readonly v4: number }): Partial<Facts> =>
  withStatus({
    peers: [
      {
        node: 'node-7',
        subnets: { v4: parseCidr('10.64.7.0/24') },
        ips: { v4: '192.0.2.7' as Ip },
        backend: 'vxlan',
        probe: { state, sent: 10, lost: 0 },
        ...(routeMtu && { routeMtu }),
      },
    ],
  })

/** The node whose card cannot cut tunnelled packets. */
const withCard = (chosen: { readonly isOn: boolean; readonly isGiven: true }): Facts['agent'] => {
  const status = healthy().status as Status
  const card = { name: 'eth0', hasTunnelChecksums: false }
  const uplink = status.uplink as NonNullable<Status['uplink']>
  return { ...status, uplink: { ...uplink, checksumOffload: { ...chosen, card, why: 'on, by a setting' } } }
}

const K3S = '/var/lib/rancher/k3s/agent/etc/cni/net.d'

/** The node with one peer that its agent does not reach. */
const withProblem = (problem: string): Partial<Facts> =>
  withStatus({ peers: (withPeer('answers').status as Status).peers.map((one) => ({ ...one, problem })) })

const FOUGHT = 'nft table plumb_agent is changed by another program again and again; it is put right every 3.2 s'

/** What nft prints of a match of UDP's port. */
const udpTo = (port: number) => ({
  match: { op: '==', left: { payload: { protocol: 'udp', field: 'dport' } }, right: port },
})

/** The chain of the rules of ufw's user. */
const UFW: Chain = { family: 'ip', table: 'filter', name: 'ufw-user-input', rules: [] }

/** The node, one of whose links has these settings. */
const withLink = (name: string, more: Partial<Link>): Partial<Facts> => ({
  links: healthy().links.map((one) => (one.name === name ? { ...one, ...more } : one)),
})

/** A fault: its code, the facts, and the sentence. Each check has one at least. */
const FAULTS: readonly (readonly [code: string, facts: Facts, says: string])[] = [
  [
    'DR1',
    healthy({ sysctls: { 'ipv4/ip_forward': '0' } }),
    'net.ipv4.ip_forward is 0: this node does not route IPv4: its pods reach only this node; run sysctl -w net.ipv4.ip_forward=1',
  ],
  [
    'DR1',
    healthy({ sysctls: { 'ipv6/conf/all/forwarding': '0' } }),
    'net.ipv6.conf.all.forwarding is 0: this node does not route IPv6: its pods reach only this node; run sysctl -w net.ipv6.conf.all.forwarding=1',
  ],
  [
    'DR1',
    healthy({ sysctls: { 'ipv4/conf/cni0/forwarding': '0' } }),
    'net.ipv4.conf.cni0.forwarding is 0: what comes by cni0 goes to no other link; run sysctl -w net.ipv4.conf.cni0.forwarding=1',
  ],
  [
    'DR2',
    healthy({
      ...withStatus({ services }),
      sysctls: { 'bridge/bridge-nf-call-iptables': '0', 'ipv4/ip_local_reserved_ports': '30000-32767' },
    }),
    'net.bridge.bridge-nf-call-iptables is 0: packets between two pods of bridge cni0 skip policy and Services; run sysctl -w net.bridge.bridge-nf-call-iptables=1',
  ],
  [
    'DR3',
    healthy({ sysctls: { 'ipv4/conf/eth0/rp_filter': '1' }, counters: grew('TcpExt.IPReversePathFilter', 2) }),
    'The reverse path filter drops 120 packets a minute; it is strict (1) on eth0: packets are lost whose answers would leave by another link; run sysctl -w net.ipv4.conf.eth0.rp_filter=2',
  ],
  [
    'DR4',
    healthy({ sysctls: { 'netfilter/nf_conntrack_count': '250000' } }),
    'The table of connections has 250000 of at most 262144 (net.netfilter.nf_conntrack_max): new connections are lost when it is full; run sysctl -w net.netfilter.nf_conntrack_max=524288',
  ],
  [
    'DR5',
    healthy({ counters: grown(new Map(), new Map([['arp_cache.entries', 1000]]), 1000) }),
    'The table of IPv4 neighbours has 1000 of at most 1024 (net.ipv4.neigh.default.gc_thresh3): packets to new neighbours are lost when it is full; run sysctl -w net.ipv4.neigh.default.gc_thresh3=4096',
  ],
  [
    'DR6',
    healthy(
      withStatus({
        reasons: ['Cannot use backend wireguard: this kernel has no module wireguard (Linux 5.6 or newer)'],
      }),
    ),
    'Cannot use backend wireguard: this kernel has no module wireguard (Linux 5.6 or newer): this node has no connection to pods of other nodes; run modprobe wireguard || apt-get install -y linux-modules-extra-$(uname -r)',
  ],
  [
    'DR7',
    healthy({ sysctls: { 'ipv6/conf/cni0/disable_ipv6': '1' } }),
    'net.ipv6.conf.cni0.disable_ipv6 is 1: pods have no IPv6; run sysctl -w net.ipv6.conf.cni0.disable_ipv6=0',
  ],
  [
    'DR8',
    healthy({ ...withStatus({ services }), sysctls: { 'ipv4/ip_local_port_range': '1024\t65535' } }),
    'net.ipv4.ip_local_port_range is 1024 65535, and node ports are 30000-32767: a program of the node may take the port of a Service for its own connection; run sysctl -w net.ipv4.ip_local_reserved_ports=30000-32767',
  ],
  [
    'DR9',
    healthy({ ruleset: { chains: [chain({ policy: 'drop' })] } }),
    'The chain ip filter FORWARD, whose policy is drop, of another program drops packets from 10.64.0.0/24 to 10.64.0.0/12: pods do not reach pods of other nodes; run iptables -I FORWARD -s 10.64.0.0/24 -j ACCEPT',
  ],
  [
    'DR9',
    healthy({
      ruleset: {
        chains: [
          chain({
            family: 'inet',
            table: 'site',
            name: 'forward',
            rules: [
              { handle: 1, expr: [matching({ ct: { key: 'state' } }, ['established', 'related']), { accept: null }] },
              { handle: 2, expr: [matching({ meta: { key: 'iifname' } }, 'flannel.1'), { drop: null }] },
            ],
          }),
        ],
      },
    }),
    'The chain inet site forward of another program drops packets from 10.64.0.0/12 to 10.64.0.0/24: pods of other nodes do not reach pods of this node; run nft insert rule inet site forward ip saddr 10.64.0.0/12 accept',
  ],
  [
    'DR13',
    healthy({
      ...withStatus({ services }),
      ruleset: {
        chains: [chain({ name: 'KUBE-SERVICES', hook: undefined as never, rules: [{ handle: 1, expr: [] }] })],
      },
    }),
    "kube-proxy left the chain ip filter KUBE-SERVICES, and the agent serves Services: a Service is answered by either of them; end kube-proxy, and the agent removes what it left; run sed -i '/^replace-kube-proxy:/d' /etc/plumb/agent.yaml; echo 'replace-kube-proxy: true' >>/etc/plumb/agent.yaml",
  ],
  [
    'DR18',
    healthy({ links: healthy().links.map((one) => (one.name === 'eth0' ? { ...one, mtu: 1400 } : one)) }),
    'flannel.1 has MTU 1450, and eth0 with MTU 1400 leaves room for 1350: larger packets of pods are lost or come in fragments; run ip link set dev flannel.1 mtu 1350',
  ],
  [
    'DR10',
    healthy({
      ruleset: {
        chains: [
          chain({
            family: 'inet',
            table: 'firewalld',
            name: 'filter_FORWARD',
            rules: [
              {
                handle: 1,
                expr: [{ match: { op: 'in', left: { ct: { key: 'status' } }, right: 'dnat' } }, { accept: null }],
              },
              { handle: 2, expr: [{ reject: null }] },
            ],
          }),
        ],
      },
    }),
    'firewalld rejects packets from 10.64.0.0/24 to 10.64.0.0/12: no zone that lets them pass has 10.64.0.0/12: pods do not reach pods of other nodes; run firewall-cmd --permanent --zone=trusted --add-source=10.64.0.0/12',
  ],
  [
    'DR10',
    healthy({
      ruleset: {
        chains: [
          chain({
            family: 'inet',
            table: 'firewalld',
            name: 'filter_INPUT',
            hook: 'input',
            rules: [
              { handle: 1, expr: [udpTo(53), { accept: null }] },
              { handle: 2, expr: [{ reject: null }] },
            ],
          }),
        ],
      },
    }),
    'firewalld closes UDP port 8472 of eth0, the port of the tunnel: packets of pods of other nodes do not arrive; run firewall-cmd --permanent --zone=$(firewall-cmd --get-zone-of-interface=eth0 || firewall-cmd --get-default-zone) --add-port=8472/udp',
  ],
  [
    'DR11',
    healthy({ ruleset: { chains: [chain({ policy: 'drop' }), UFW] } }),
    'ufw drops packets from 10.64.0.0/24 to 10.64.0.0/12 (DEFAULT_FORWARD_POLICY="DROP"): pods do not reach pods of other nodes; run ufw route allow from 10.64.0.0/24',
  ],
  [
    'DR11',
    healthy({
      ...withPeer('silent'),
      reach: new Map([['192.0.2.7' as Ip, { answers: true, isTunnelled: false }]]),
      ruleset: { chains: [chain({ policy: 'drop', name: 'INPUT', hook: 'input' }), UFW] },
    }),
    'ufw closes UDP port 8472, the port of the tunnel: packets of pods of other nodes do not arrive; run ufw allow 8472/udp',
  ],
  [
    'DR15',
    healthy({
      ...withStatus({
        fights: { what: [FOUGHT], by: { pid: 78, name: 'nft', parent: { pid: 77, name: 'reset.sh' } } },
      }),
      processes: [{ pid: 77, name: 'reset.sh', argv: ['/bin/sh', '/opt/reset.sh'] }],
    }),
    'reset.sh (pid 77) undoes nft table plumb_agent again and again: the agent puts it right after a pause, and until then packets are lost or pass without the rules; run kill 77',
  ],
  [
    'DR15',
    healthy(withStatus({ fights: { what: [FOUGHT], by: { pid: 78, name: 'nft' } } })),
    'nft undoes nft table plumb_agent again and again: the agent puts it right after a pause, and until then packets are lost or pass without the rules; run timeout 30 nft monitor ruleset | head -n 40',
  ],
  [
    'DR16',
    healthy({ nft: { version: '0.9.8', tables: [] } }),
    'nft has the version 0.9.8; want 1.0 or later: plumb cannot make its rules; run apt-get install -y nftables || dnf install -y nftables',
  ],
  [
    'DR16',
    healthy({ nft: { version: '1.0.6', failure: 'netlink: Error: Unknown set type', tables: ['inet newer'] } }),
    'nft 1.0.6 cannot read the tables inet newer (netlink: Error: Unknown set type): nobody sees whether these rules drop packets of pods; a newer nft reads them; run apt-get install -y nftables || dnf install -y nftables',
  ],
  [
    'DR22',
    healthy({ twins: [{ ip: '192.0.2.1' as Ip, link: 'eth0', mac: '02:00:00:00:00:09' as Mac }] }),
    '192.0.2.1 of eth0 also answers from MAC 02:00:00:00:00:09: packets for this node go to that machine at times; give one of the two another address; run ip neigh show dev eth0 | sed -n /02:00:00:00:00:09/p',
  ],
  [
    'DR22',
    healthy({ twins: [{ ip: '2001:db8::1' as Ip, link: 'eth0' }] }),
    '2001:db8::1 of eth0 is in use by another machine: packets for this node go to that machine at times; give one of the two another address; run ip -6 addr show dev eth0 dadfailed',
  ],
  [
    'DR26',
    healthy(
      withStatus({
        unreadable: 1,
        unreadableWhy: [
          { key: 'node-8', why: 'its pod CIDR 10.64.7.0/24 overlaps that of node "node-7", which is older' },
        ],
      }),
    ),
    'The Nodes node-8 and node-7 have the pod CIDR 10.64.7.0/24, and node-7 is older: no other node reaches pods of node-8; run kubectl delete node node-8',
  ],
  [
    'DR26',
    healthy(
      withStatus({
        reasons: [
          'this node has no subnet yet: Cannot use the Node "node-0": its pod CIDR 10.64.7.0/24 overlaps that of node "node-7", which is older',
        ],
      }),
    ),
    'The Nodes node-0 and node-7 have the pod CIDR 10.64.7.0/24, and node-7 is older: no other node reaches pods of node-0; run kubectl delete node node-0',
  ],
  [
    'DR29',
    healthy(
      withStatus({
        reasons: [
          'this node has no subnet yet: Cannot use the Node "node-0": it has no pod CIDR; want the controller manager to give one (…)',
        ],
      }),
    ),
    "The Node node-0 has no spec.podCIDR: this node has no subnet, and its pods do not start; run the command on the control plane; run sed -i '/- kube-controller-manager$/a\\    - --allocate-node-cidrs=true' /etc/kubernetes/manifests/kube-controller-manager.yaml",
  ],
  [
    'DR30',
    healthy({ pools: [{ network: 'cbr0', subnets: [parseCidr('10.64.0.0/24')], size: 253, taken: 250, left: 12 }] }),
    'The pool 10.64.0.0/24 of the network cbr0 has 250 of its 253 addresses taken, 12 of them by pods that are gone: no pod starts when it is full; run plumb cni gc cbr0',
  ],
  [
    'DR30',
    healthy({ pools: [{ network: 'cbr0', subnets: [parseCidr('10.64.0.0/24')], size: 253, taken: 241, left: 0 }] }),
    'The pool 10.64.0.0/24 of the network cbr0 has 241 of its 253 addresses taken: no pod starts when it is full; run plumb cni list cbr0',
  ],
  [
    'DR31',
    healthy(withProblem('it announces the MAC 02:00:00:00:00:02, as the node with 192.0.2.2 does')),
    "node-7 and the node with 192.0.2.2 have the MAC 02:00:00:00:00:02: pods of one of them are not reached; its disk is a copy of the other's; run the commands on node-7; run systemctl stop plumb-agent",
  ],
  [
    'DR31',
    healthy(withProblem("it announces this node's own MAC 02:00:00:00:00:02: this node is a copy of it")),
    "node-7 and this node have the MAC 02:00:00:00:00:02: pods of one of them are not reached; its disk is a copy of the other's; run systemctl stop plumb-agent",
  ],
  [
    'DR31',
    healthy(withProblem("it has this node's own key abc=: one node is a copy of the other; give this one another key")),
    "node-7 and this node have the key abc=: pods of one of them are not reached; its disk is a copy of the other's; run plumb wireguard rotate",
  ],
  [
    'DR36',
    healthy(withStatus({ store: { name: 'kube', connected: true, clockOffMs: -90_000 } })),
    'The clock of this node is 90 s behind that of the API server: certificates and tokens do not count; run timedatectl set-ntp true',
  ],
  [
    'DR36',
    healthy({ certificates: [{ path: KUBELET, from: NOW - 362 * DAY, until: NOW + 3 * DAY }] }),
    'The certificate in /var/lib/kubelet/pki/kubelet-client-current.pem ends at 2026-03-04T00:00:00.000Z: the API server and etcd then refuse this node; run systemctl restart kubelet',
  ],
  [
    'DR41',
    healthy({ runtimes: [containerd({ version: '1.5.18' })] }),
    '/etc/cni/net.d/10-flannel.conflist has cniVersion 1.0.0, and containerd 1.5.18 (pid 5) reads 0.4.0 at most: it refuses what the plugins answer, and no pod starts; run sed -i \'s/"cniVersion": *"1.0.0"/"cniVersion": "0.4.0"/\' /etc/cni/net.d/10-flannel.conflist',
  ],
  [
    'DR42',
    healthy({ runtimes: [containerd({ confDir: K3S, networks: [] })] }),
    `containerd (pid 5) takes networks from ${K3S}, and /etc/cni/net.d/10-flannel.conflist is not there: pods are not in the network cbr0; run mkdir -p ${K3S}`,
  ],
  [
    'DR42',
    healthy({ runtimes: [containerd({ binDirs: ['/var/lib/rancher/k3s/data/cni'] })] }),
    'containerd (pid 5) looks for plugins in /var/lib/rancher/k3s/data/cni, not in /opt/cni/bin: pods are not in the network cbr0; run plumb install --bin-dir /var/lib/rancher/k3s/data/cni',
  ],
  [
    'DR44',
    healthy({
      pods: healthy().pods.map((one) => ({ ...one, hostPorts: [{ protocol: 'tcp', port: 80, ip: 'any4' }] })),
      listeners: [{ protocol: 'tcp', ip: '0.0.0.0', port: 80, name: 'nginx', pid: 7 }],
    }),
    'TCP port 80 of this node leads to container abc (10.64.0.2, fd00:64::2), and nginx (pid 7) listens there: nginx does not get packets from other machines; run kill 7',
  ],
  [
    'DR44',
    healthy({
      pods: healthy().pods.map((one) => ({ ...one, hostPorts: [{ protocol: 'udp', port: 30_053, ip: 'any6' }] })),
      services: [
        {
          ...service('x/dns', '10.96.0.1:53/UDP', '10.64.0.9:53'),
          ports: ['10.96.0.1:53/UDP', '[fd00::1]:53/UDP'].map((at) => ({
            ...(service('x/dns', at, '10.64.0.9:53').ports[0] as ServiceView['ports'][number]),
            nodePort: 30_053,
          })),
        },
      ],
    }),
    'UDP port 30053 of this node leads to container abc (10.64.0.2, fd00:64::2), and is the node port of the Service x/dns: the Service gets its packets, and the pod none; run kubectl --namespace x edit service dns',
  ],
  [
    'DR47',
    healthy(withStatus({ store: { name: 'kube', connected: true, isUnavailable: true } })),
    'The Node node-0 has the condition NetworkUnavailable, and its agent serves pods: the scheduler sends no pods to this node; run kubectl patch node node-0 --subresource=status --type=strategic -p \'{"status":{"conditions":[{"type":"NetworkUnavailable","status":"False","reason":"FlannelIsUp"}]}}\'',
  ],
  [
    'DR48',
    healthy({
      services: [
        {
          ...service('kube-system/kube-dns', '10.96.0.10:53/UDP'),
          ports: [
            {
              name: 'dns',
              addresses: ['10.96.0.10:53/UDP'],
              endpoints: [{ address: '10.64.0.9:53', isLocal: true, leftOut: 'it is not ready' }],
            },
          ],
        },
      ],
    }),
    'The Service kube-system/kube-dns (10.96.0.10:53/UDP) has no ready endpoint: no pod looks up a name; run kubectl -n kube-system get pods -l k8s-app=kube-dns -o wide',
  ],
  [
    'DR48',
    healthy({ resolver: { path: '/etc/resolv.conf', kubelet: '/kubelet.yaml', servers: ['127.0.0.53'] } }),
    `kubelet gives pods /etc/resolv.conf, whose name server 127.0.0.53 is the pod itself there: CoreDNS asks itself and ends with "Loop detected"; run grep -q ^resolvConf: /kubelet.yaml && sed -i 's,^resolvConf:.*,resolvConf: ${RESOLVED},' /kubelet.yaml || echo 'resolvConf: ${RESOLVED}' >>/kubelet.yaml`,
  ],
  [
    'DR49',
    healthy({ services: [service('x/web', '10.96.0.1:80/TCP')] }),
    "The Service x/web has no endpoints, because no pod matches: clients are refused; compare the selector with the labels of pods; run kubectl -n x get service web -o jsonpath='{.spec.selector}'",
  ],
  [
    'DR49',
    healthy({ unheard: [{ service: 'x/web', address: '10.64.0.2:8080' }] }),
    "The Service x/web leads to 10.64.0.2:8080, and nobody listens there: its clients are refused; compare its targetPort with the port of the program; run kubectl -n x get service web -o jsonpath='{.spec.ports}'",
  ],
  [
    'DR50',
    healthy({ nameless: [{ pod: 'x/a', policies: ['x/deny'], accepting: 'x/deny' }] }),
    'x/deny isolates x/a for egress and forgets DNS: the pod looks up no name; run kubectl -n x patch networkpolicy deny --type=json -p \'[{"op":"add","path":"/spec/egress/-","value":{"ports":[{"protocol":"UDP","port":53},{"protocol":"TCP","port":53}]}}]\'',
  ],
  [
    'DR23',
    healthy({
      ...withStatus({
        peers: [{ ...(peer as NonNullable<typeof peer>), node: 'node-7', ips: { v4: '192.0.2.1' as Ip } }],
      }),
      links: [...healthy().links, link('eth1', '', { cidrs: ['198.51.100.7/24'] })],
    }),
    "This node and node-7 announce 192.0.2.1 of eth0: packets to pods of the others come back to this node; run sed -i '/^iface:/d' /etc/plumb/agent.yaml; echo 'iface: eth1' >>/etc/plumb/agent.yaml",
  ],
  [
    'DR25',
    healthy({ subnetFile: { path: '/run/flannel/subnet.env', isThere: false } }),
    'The file /run/flannel/subnet.env is missing: pods fail with "open /run/flannel/subnet.env: no such file or directory"; run systemctl restart plumb-agent',
  ],
  [
    'DR27',
    healthy({ links: [...healthy().links, link('docker0', 'bridge', { cidrs: ['10.66.0.1/16'] })] }),
    'The network of pods 10.64.0.0/12 overlaps 10.66.0.1/16 of docker0: packets to one of them go to the other; one of the two needs another network; run ip addr del 10.66.0.1/16 dev docker0',
  ],
  // A bridge that somebody made may be the way to the node.
  [
    'DR27',
    healthy({ links: [...healthy().links, link('br0', 'bridge', { cidrs: ['10.66.0.1/16'] })] }),
    'The network of pods 10.64.0.0/12 overlaps 10.66.0.1/16 of br0: packets to one of them go to the other; one of the two needs another network; run ip addr show dev br0',
  ],
  [
    'DR12',
    healthy({
      ruleset: { chains: [chain({})] },
      legacyRules: [{ tool: 'iptables-legacy', table: 'filter', count: 3 }],
    }),
    'The old tables of iptables have rules beside those of nftables (iptables-legacy filter: 3): both decide, and iptables -S does not show the old ones; run iptables-legacy-save >/var/tmp/iptables-legacy.rules',
  ],
  [
    'DR14',
    healthy({
      ruleset: {
        chains: [
          chain({
            family: 'inet',
            table: 'proxy',
            name: 'in',
            hook: 'prerouting',
            type: 'nat',
            rules: [{ handle: 1, expr: [{ redirect: null }] }],
          }),
        ],
      },
    }),
    'The chain inet proxy in of another program redirects packets from 10.64.0.0/24 to 10.64.0.0/12: another program answers in place of the pod that was asked; run nft insert rule inet proxy in ip saddr 10.64.0.0/24 ip daddr 10.64.0.0/12 accept',
  ],
  [
    'DR14',
    healthy({
      ruleset: {
        chains: [
          chain({
            table: 'nat',
            name: 'POSTROUTING',
            hook: 'postrouting',
            type: 'nat',
            rules: [{ handle: 1, expr: [{ xt: { type: 'target', name: 'MASQUERADE' } }] }],
          }),
        ],
      },
    }),
    'The chain ip nat POSTROUTING of another program masquerades packets from 10.64.0.0/24 to 10.64.0.0/12: pods of other nodes see the address of this node, and so do their policies; run iptables -t nat -I POSTROUTING -s 10.64.0.0/24 -d 10.64.0.0/12 -j ACCEPT',
  ],
  [
    'DR17',
    healthy({ ...withPeer('silent'), reach: new Map([['192.0.2.7' as Ip, { answers: true, isTunnelled: false }]]) }),
    'Node node-7 (192.0.2.7) answers, its tunnel does not; want UDP port 8472 to pass between the nodes: pods of these nodes do not reach each other; run iptables -I INPUT -p udp --dport 8472 -j ACCEPT',
  ],
  [
    'DR17',
    healthy({ ...withPeer('silent'), reach: new Map([['192.0.2.7' as Ip, { answers: false, isTunnelled: false }]]) }),
    'Node node-7 (192.0.2.7) answers neither at the address of the node nor over the tunnel: its pods are not reached; the node is down, or the network between the nodes is; run ip route get 192.0.2.7',
  ],
  [
    'DR19',
    healthy({
      ...withPeer('narrow'),
      reach: new Map([['192.0.2.7' as Ip, { answers: true, isTunnelled: true, largest: 1372 }]]),
    }),
    'Packets over 1372 bytes to node-7 vanish; pods have 1450: large answers hang; raise the MTU of the link between the nodes, or set "MTU" of the backend to 1372; run ip route get 192.0.2.7',
  ],
  [
    'DR57',
    healthy({
      ...withPeer('narrow', { v4: 1372 }),
      reach: new Map([['192.0.2.7' as Ip, { answers: true, isTunnelled: true, largest: 1372 }]]),
    }),
    'Packets over 1372 bytes to node-7 vanish; pods have 1450, and the routes to node-7 have the size that arrives: pods learn it packet by packet; raise the MTU of the link between the nodes, or set "MTU" of the backend so that pods get 1372; run ip route get 192.0.2.7',
  ],
  [
    'DR20',
    healthy({ counters: grew('Udp.InCsumErrors', 7) }),
    "7 packets with wrong checksums came in 1.0 s (Udp.InCsumErrors): the kernel drops them, and connections hang; switch the offload of checksums off at the sender; run sed -i '/^tx-checksum-offload:/d' /etc/plumb/agent.yaml; echo 'tx-checksum-offload: off' >>/etc/plumb/agent.yaml",
  ],
  [
    'DR56',
    healthy({ agent: withCard({ isOn: true, isGiven: true }) }),
    "A setting switches the checksum offload of the tunnel on, and the card eth0 lacks tx-udp_tnl-csum-segmentation: the tunnel is slow from Linux 6.12 on, or its checksums are wrong; run sed -i '/^tx-checksum-offload:/d' /etc/plumb/agent.yaml; echo 'tx-checksum-offload: off' >>/etc/plumb/agent.yaml",
  ],
  [
    'DR24',
    healthy({ links: healthy().links.map((one) => (one.name === 'eth0' ? { ...one, hasCarrier: false } : one)) }),
    'The uplink eth0 has no carrier: its cable or its other end is down: pods reach only this node; run ip link set dev eth0 up',
  ],
  [
    'DR32',
    healthy({
      ...withPeer('answers'),
      rules: [{ family: 4, priority: 5270, table: '52', text: 'from all lookup 52' }],
      routes: [
        { family: 4, dst: parseCidr('10.64.0.0/16'), dev: 'tailscale0', type: 'unicast', table: '52', proto: '' },
      ],
    }),
    'Packets to 10.64.7.0/24 of node-7 leave by tailscale0: rule 5270 (from all lookup 52) finds 10.64.0.0/16 dev tailscale0 table 52 first: its pods are not reached; run ip -4 rule add to 10.64.0.0/12 lookup main priority 5269',
  ],
  [
    'DR32',
    healthy({
      ...withPeer('answers'),
      routes: [
        { family: 4, dst: parseCidr('10.64.7.128/25'), dev: 'tun0', type: 'unicast', table: 'main', proto: 'static' },
      ],
    }),
    'Packets to 10.64.7.0/24 of node-7 leave by tun0: the route 10.64.7.128/25 dev tun0: its pods are not reached; run ip route del 10.64.7.128/25 dev tun0',
  ],
  [
    'DR33',
    healthy({ processes: [{ pid: 3, name: 'systemd-network', argv: ['/lib/systemd/systemd-networkd'] }] }),
    'systemd-networkd runs with ManageForeignRoutes=yes and ManageForeignRoutingPolicyRules=yes: each of its restarts deletes routes of pods, until the agent puts them back; run mkdir -p /etc/systemd/networkd.conf.d',
  ],
  [
    'DR34',
    healthy({ processes: [{ pid: 3, name: 'NetworkManager', argv: ['/usr/sbin/NetworkManager'] }] }),
    "NetworkManager runs, and no unmanaged-devices names interface-name:veth*, interface-name:cni*, interface-name:flannel*: it may set links of pods down, or give them addresses; run printf '[keyfile]\\nunmanaged-devices+=interface-name:veth*;interface-name:cni*;interface-name:flannel*\\n' >/etc/NetworkManager/conf.d/90-plumb.conf",
  ],
  [
    'DR35',
    healthy({
      processes: [{ pid: 3, name: 'systemd-network', argv: ['/lib/systemd/systemd-networkd'] }],
      configurations: [
        {
          path: '/etc/systemd/networkd.conf.d/90-plumb.conf',
          text: '[Network]\nManageForeignRoutes=no\nManageForeignRoutingPolicyRules=no\n',
        },
        { path: '/etc/systemd/network/10-all.network', text: '[Match]\nName=*\n\n[Network]\nDHCP=yes\n' },
      ],
    }),
    "/etc/systemd/network/10-all.network matches links of pods (Name=*): systemd-networkd configures links of pods; run sed -i 's/^ *Name *=.*/& !veth* !cni* !flannel*/' /etc/systemd/network/10-all.network",
  ],
  ...(
    [
      ['ENOSPC', 'is full', 'du -xh /run | sort -h | tail'],
      ['EROFS', 'is read-only', 'mount -o remount,rw /run'],
      ['EIO', 'fails', 'findmnt /run'],
    ] as const
  ).map(([refusal, why, command]): (typeof FAULTS)[number] => [
    'DR37',
    healthy({ disks: [{ path: '/run/cni/plumb', of: 'plugins', mount: '/run', refusal, freeBytes: 0 }] }),
    `Cannot write to /run/cni/plumb, because the file system /run ${why} (${refusal}): no pod can be attached; run ${command}`,
  ]),
  [
    'DR37',
    healthy({ disks: [{ path: '/var/lib/plumb', of: 'agent', mount: '/', refusal: 'ENOSPC', freeBytes: 0 }] }),
    'Cannot write to /var/lib/plumb, because the file system / is full (ENOSPC): the agent does not keep its state; run du -xh / | sort -h | tail',
  ],
  [
    'DR55',
    healthy({ disks: [{ path: '/run/cni/plumb', of: 'plugins', mount: '/run', freeBytes: 5e5 }] }),
    'The file system /run of /run/cni/plumb has 488 kB left: soon no pod can be attached; run du -xh /run | sort -h | tail',
  ],
  [
    'DR38',
    healthy({ lists: { dir: '/etc/cni/net.d', files: [], binDirs: [], plugins: [] } }),
    `There is no *.conflist, *.conf or *.json file in /etc/cni/net.d: the node says "cni config uninitialized" and starts no pod; run sed -i '/^install-cni:/d' /etc/plumb/agent.yaml; echo 'install-cni: true' >>/etc/plumb/agent.yaml`,
  ],
  [
    'DR46',
    healthy(withStatus({ store: { name: 'etcd', connected: false, error: 'connection refused' } })),
    'The agent does not reach its store, etcd (connection refused): it goes on with what it knows, and does not see new nodes; run journalctl -u plumb-agent -n 20 --no-pager',
  ],
  [
    'DR54',
    healthy(
      withStatus({
        unknownObjects: [
          'The Kubernetes API at https://10.0.0.1:6443 refused GET /api/v1/pods: 403 pods is forbidden; want a role that allows it for the service account of the pod',
        ],
      }),
    ),
    'The Kubernetes API at https://10.0.0.1:6443 refused GET /api/v1/pods: 403 pods is forbidden; want a role that allows it for the service account of the pod: what changes among these objects does not come to this node, and a node that starts serves no pods; run kubectl edit clusterrole plumb',
  ],
  [
    'DR51',
    healthy(withStatus({ peers: [{ ...(peer as NonNullable<typeof peer>), node: 'node-7', backend: 'host-gw' }] })),
    'This node uses the backend vxlan; node-7 uses host-gw: pods of these nodes do not reach each other; run systemctl restart plumb-agent',
  ],
  [
    'DR53',
    healthy(withStatus({ peers: [{ ...(peer as NonNullable<typeof peer>), node: 'node-7', version: '0.0.9' }] })),
    'This node runs plumb 0.1.0; node-7 runs 0.0.9: nodes may not do the same; let the update go to its end; run kubectl -n plumb rollout status daemonset/plumb-agent --timeout=10s',
  ],
  [
    'DR52',
    healthy({ processes: [{ pid: 7, name: 'flanneld', argv: ['/opt/bin/flanneld'] }] }),
    'flanneld of flannel runs on this node (pid 7): it and the agent program the same devices and routes; run kill 7',
  ],
  [
    'DR21',
    healthy({
      ...withStatus({ reasons: ['Cannot make flannel.1'] }),
      links: healthy().links.map((one) => (one.name === 'flannel.1' ? { ...one, name: 'vxlan0', addresses: [] } : one)),
    }),
    'The VXLAN device vxlan0 has the VNI 1 of flannel.1, at UDP port 8472: the agent cannot make flannel.1, and pods reach only this node; run ip link delete dev vxlan0',
  ],
  [
    'DR28',
    healthy(withLink('cni0', { addresses: link('', '', { cidrs: ['10.99.0.1/24'] }).addresses })),
    'The bridge cni0 has the address 10.99.0.1/24, and the subnet of this node is 10.64.0.0/24: pods fail with "cni0 already has an IP address different from"; run ip addr del 10.99.0.1/24 dev cni0',
  ],
  [
    'DR39',
    healthy({
      lists: {
        ...healthy().lists,
        files: [
          {
            path: '/etc/cni/net.d/05-other.conflist',
            list: parseNetwork(LIST.replace('flannel', 'bridge').replace('cbr0', 'other'), 'LIST'),
          },
          ...healthy().lists.files,
        ],
      },
    }),
    'The runtime takes /etc/cni/net.d/05-other.conflist (bridge), not /etc/cni/net.d/10-flannel.conflist: it is first by name: new pods are not in the network of this agent; run mv /etc/cni/net.d/05-other.conflist /etc/cni/net.d/05-other.conflist.off',
  ],
  [
    'DR40',
    healthy({
      lists: {
        ...healthy().lists,
        plugins: healthy().lists.plugins.map((one) => (one.type === 'bridge' ? { ...one, path: undefined } : one)),
      },
    }),
    'The plugin bridge is not in /opt/cni/bin: pods of the network cbr0 do not start (/etc/cni/net.d/10-flannel.conflist); run plumb install --bin-dir /opt/cni/bin',
  ],
  [
    'DR43',
    healthy(withLink('veth1', { isUp: false })),
    'The link veth1 is down: eth0 of container abc (10.64.0.2, fd00:64::2) has no network; run ip link set dev veth1 up',
  ],
  [
    'DR45',
    healthy(withLink('veth1', { mtu: 1500 })),
    '1 pod has MTU 1500, and the network has 1450 now (abc): their large packets to other nodes are lost; run crictl stopp abc',
  ],
]

describe('the checks of the doctor', () => {
  it('find nothing on a healthy node', () => {
    const { findings, notMade, made } = examine(healthy())
    assert.deepEqual(findings, [])
    assert.deepEqual(notMade, [])
    assert.equal(made.length, CHECKS.length)
  })
  for (const [code, facts, says] of FAULTS)
    it(`${code} is found alone: ${says.slice(0, 60)}`, () => {
      const { findings } = examine(facts)
      assert.deepEqual([...new Set(findings.map((one) => one.code))], [code], JSON.stringify(findings))
      assert.equal(sentenceOf(findings[0] as (typeof findings)[number]), says)
    })
  it('each has a code of its own, a title without a full stop, and sentences with a command', () => {
    assert.equal(new Set(CHECKS.map(({ code }) => code)).size, CHECKS.length)
    for (const { title } of CHECKS) assert.match(title, /^[a-zA-Z].*[^.]$/)
    for (const [, facts] of FAULTS)
      for (const { text, commands } of examine(facts).findings) {
        assert.match(text, /^\S.*: \S.*[^.]$/s)
        assert.ok(commands.length > 0, text)
        for (const command of commands) assert.doesNotMatch(command, /\n/)
      }
  })
  it('each is turned red by a fault above', () => {
    const faulty = new Set<string>(FAULTS.map(([code]) => code))
    assert.deepEqual(
      CHECKS.flatMap(({ code, title }) => (faulty.has(code) ? [] : `${code}: ${title}`)),
      [],
    )
  })
  it('each reads the facts that it names, and no others', () => {
    const asked = new Map<string, Set<string>>()
    for (const facts of [healthy(), ...FAULTS.map(([, one]) => one)])
      for (const { code, detect } of CHECKS) {
        const names = asked.get(code) ?? new Set()
        asked.set(code, names)
        const get = (all: Facts, name: string | symbol) => {
          names.add(String(name))
          return all[name as keyof Facts]
        }
        detect(new Proxy(facts, { get }))
      }
    assert.deepEqual(
      CHECKS.map(({ code }) => [code, [...(asked.get(code) ?? [])].sort()]),
      CHECKS.map(({ code, reads }) => [code, [...reads].sort()]),
    )
  })
  it('those that the agent makes read facts that it knows', () => {
    const given = Object.entries(FACTS).flatMap(([name, { inAgent }]) => (inAgent === 'given' ? name : []))
    const { agent, pods, ruleset, lists } = healthy()
    const before = { reading: new Map(), ms: 1000 }
    const ofAgent = factsOfAgent({
      agent: agent as NonNullable<typeof agent>,
      pods,
      ruleset,
      lists: () => lists,
      before,
    })
    for (const name of given) assert.ok(ofAgent[name as keyof Facts], name)
    const isKnown = (name: keyof Facts) => given.includes(name) || typeof FACTS[name].inAgent === 'function'
    assert.deepEqual(
      AGENT_CHECKS.flatMap(({ code, reads }) =>
        reads.filter((name) => !isKnown(name)).map((name) => `${code}: ${name}`),
      ),
      [],
    )
    assert.ok(AGENT_CHECKS.length >= 14)
  })
})

describe('the table of neighbours', () => {
  it('DR5: is not full of the permanent entries of a tunnel to 1,000 peers', () => {
    const counters = grown(new Map(), new Map([['arp_cache.entries', 1010]]), 1000)
    assert.deepEqual(examine(healthy({ counters, uncountedNeighbours: () => 1000 })).findings, [])
  })
})

describe('a kernel without a module', () => {
  it('DR6: is found by what the agent says of each backend', () => {
    for (const said of ['no module fou: modprobe fou, or', 'no links of type ipip: modprobe ipip, or']) {
      const { findings } = examine(healthy(withStatus({ reasons: [`Cannot use it: this kernel has ${said} more`] })))
      assert.deepEqual(
        findings.map(({ code, commands }) => [code, commands[1]]),
        [['DR6', `modprobe ${/(ipip|fou)/.exec(said)?.[0]}`]],
      )
    }
  })
})

describe('rules that may be for a packet', () => {
  const nat = (...rules: readonly Chain['rules'][number]['expr'][]): Facts => {
    const numbered = rules.map((expr, handle) => ({ handle, expr }))
    const base = { family: 'ip', table: 'nat' } as const
    const jump = [{ handle: 1, expr: [{ jump: { target: 'KUBE-POSTROUTING' } }] }]
    const chains: Chain[] = [
      { ...base, name: 'POSTROUTING', hook: 'postrouting', type: 'nat', policy: 'accept', rules: jump },
      { ...base, name: 'KUBE-POSTROUTING', rules: numbered },
    ]
    return healthy({ ruleset: { chains } })
  }
  const masquerade = [{ xt: { type: 'target', name: 'MASQUERADE' } }]
  const unmarked = { match: { op: '!=', left: { '&': [{ meta: { key: 'mark' } }, 16_384] }, right: 16_384 } }

  it('DR14: those behind a return for unmarked packets, as kube-proxy has them, translate nothing for sure', () => {
    assert.deepEqual(examine(nat([unmarked, { return: null }], masquerade)).findings, [])
    assert.deepEqual(examine(nat([unmarked, { goto: { target: 'OTHER' } }], masquerade)).findings, [])
    assert.deepEqual(
      examine(nat(masquerade)).findings.map(({ code }) => code),
      ['DR14'],
    )
  })
})

describe('a network that comes before that of the agent', () => {
  const files = (first: object) =>
    [
      ['/etc/cni/net.d/00-first.conf', JSON.stringify({ cniVersion: '1.0.0', name: 'first', plugins: [first] })],
      ['/etc/cni/net.d/10-flannel.conflist', LIST],
    ].map(([path = '', text = '']) => ({ path, list: parseNetwork(text, path) }))
  const codesOf = (first: object) => {
    const { lists } = healthy()
    const { type } = first as { type: string }
    const plugins = [...lists.plugins, { ...(lists.plugins[0] as (typeof lists.plugins)[0]), type }]
    return examine(healthy({ lists: { ...lists, plugins, files: files(first) } })).findings.map(({ code }) => code)
  }
  it('DR39: is no fault when Multus gives pods the network of the agent first', () => {
    assert.deepEqual(codesOf({ type: 'multus', delegates: [{ name: 'cbr0', plugins: [] }] }), [])
    assert.deepEqual(codesOf({ type: 'multus', clusterNetwork: '/host/etc/cni/net.d/10-flannel.conflist' }), [])
    assert.deepEqual(codesOf({ type: 'multus-shim', clusterNetwork: 'cbr0' }), [])
    assert.deepEqual(codesOf({ type: 'multus-shim' }), [])
  })
  it('DR39: is one when Multus gives pods another network first, and for all other plugins', () => {
    assert.deepEqual(codesOf({ type: 'multus', delegates: [{ name: 'other' }] }), ['DR39'])
    assert.deepEqual(codesOf({ type: 'multus', clusterNetwork: '05-other.conflist' }), ['DR39'])
    assert.deepEqual(codesOf({ type: 'bridge' }), ['DR39'])
  })
})

describe('a bridge with the address of an earlier subnet', () => {
  const seen = (delegate: object, podIp: string) => {
    const { lists, links, pods } = healthy()
    const text = JSON.stringify({ cniVersion: '1.0.0', name: 'cbr0', plugins: [{ type: 'flannel', delegate }] })
    return examine(
      healthy({
        lists: { ...lists, files: [{ path: '/etc/cni/net.d/10-flannel.conflist', list: parseNetwork(text, 'LIST') }] },
        links: links.map((one) =>
          one.name === 'cni0' ? link('cni0', 'bridge', { mtu: 1450, cidrs: ['10.99.0.1/24'] }) : one,
        ),
        pods: pods.map((one) => ({ ...one, ips: [podIp as Ip] })),
      }),
    ).findings.filter(({ code }) => code === 'DR28')
  }
  const found = (delegate: object, podIp: string) =>
    seen(delegate, podIp).map(({ text }) => text.slice(text.indexOf(': ') + 2))
  it('DR28: stops no pod of a list with forceAddress, which the next pod follows: only pods of the earlier subnet are the worse', () => {
    assert.deepEqual(found({ forceAddress: true }, '10.64.0.2'), [])
    assert.deepEqual(found({ forceAddress: true }, '10.99.0.2'), [
      'the next pod takes it away, and the pods of that subnet lose their gateway',
    ])
    for (const ip of ['10.64.0.2', '10.99.0.2'])
      assert.deepEqual(found({}, ip), ['pods fail with "cni0 already has an IP address different from"'])
  })
  it('DR28: the way to mend it cuts no living pod: the node is drained before their gateway goes', () => {
    const commands = (ip: string) => seen({}, ip).flatMap((one) => one.commands)
    assert.deepEqual(commands('10.64.0.2'), ['ip addr del 10.99.0.1/24 dev cni0'])
    assert.deepEqual(commands('10.99.0.2'), [
      'kubectl drain node-0 --ignore-daemonsets --delete-emptydir-data',
      'ip addr del 10.99.0.1/24 dev cni0',
      'kubectl uncordon node-0',
    ])
  })
})

describe('examine()', () => {
  const check = (code: Check['code'], more: Partial<Check> = {}): Check => ({
    reads: [],
    code,
    title: code,
    severity: 'error',
    detect: () => [{ what: `${code} is so`, effect: 'it hurts', commands: ['true'] }],
    ...more,
  })
  it('hides what follows from another finding, and names the cause', () => {
    const { findings, hidden } = examine(healthy(), [check('DR24'), check('DR17', { dependsOn: ['DR1', 'DR24'] })])
    assert.deepEqual(
      [findings.map(({ code }) => code), hidden.map((one) => [one.code, one.because])],
      [['DR24'], [['DR17', 'DR24']]],
    )
  })
  it('shows a finding whose possible causes are not there', () => {
    const calm = check('DR24', { detect: () => [] })
    assert.equal(examine(healthy(), [calm, check('DR17', { dependsOn: ['DR24'] })]).findings.length, 1)
  })
  it('puts errors first, then lower codes', () => {
    const all = [
      check('DR3', { severity: 'warning' }),
      check('DR20'),
      check('DR9'),
      check('DR1', { severity: 'warning' }),
    ]
    assert.deepEqual(
      examine(healthy(), all).findings.map(({ code }) => code),
      ['DR9', 'DR20', 'DR1', 'DR3'],
    )
  })
  it('counts a check without its facts as not made, with the reason', () => {
    const blind = check('DR9', {
      detect: () => {
        throw new NotRead('nft: Operation not permitted')
      },
    })
    const { notMade, made } = examine(healthy(), [blind, check('DR1')])
    assert.deepEqual(notMade, [{ code: 'DR9', why: 'nft: Operation not permitted' }])
    assert.deepEqual(made, ['DR1'])
  })
  it('throws what is no missing fact', () => {
    const wrong = check('DR9', {
      detect: () => {
        throw new TypeError('a fault of the check')
      },
    })
    assert.throws(() => examine(healthy(), [wrong]), TypeError)
  })
})

describe('the folders of a runtime', () => {
  it('are found in what containerd 1 and 2 and CRI-O print', () => {
    const one = `version = 2\n[plugins]\n  [plugins."io.containerd.grpc.v1.cri"]\n    sandbox = "x"\n    [plugins."io.containerd.grpc.v1.cri".cni]\n      bin_dir = "/b"\n      conf_dir = "/c"\n    [plugins."io.containerd.grpc.v1.cri".containerd]\n      bin_dir = "/no"\n`
    assert.deepEqual(ofContainerd(one), { confDir: '/c', binDirs: ['/b'] })
    const two = `[plugins]\n  [plugins.'io.containerd.cri.v1.runtime']\n    [plugins.'io.containerd.cri.v1.runtime'.cni]\n      bin_dir = ''\n      bin_dirs = ['/a', '/b']\n      conf_dir = '/c'\n`
    assert.deepEqual(ofContainerd(two), { confDir: '/c', binDirs: ['/a', '/b'] })
    assert.deepEqual(ofContainerd(''), { confDir: '/etc/cni/net.d', binDirs: ['/opt/cni/bin'] })
    const crio = `[crio.network]\nnetwork_dir = "/etc/cni/net.d/"\nplugin_dirs = [\n\t"/opt/cni/bin",\n\t"/usr/libexec/cni/",\n]\n`
    assert.deepEqual(ofCrio(crio), { confDir: '/etc/cni/net.d', binDirs: ['/opt/cni/bin', '/usr/libexec/cni/'] })
  })
})

describe('shellWord()', () => {
  it('puts words in quotes where a shell needs them', () => {
    assert.equal(shellWord('/opt/cni/bin'), '/opt/cni/bin')
    assert.equal(shellWord("it's; rm -rf /"), `'it'\\''s; rm -rf /'`)
    assert.equal(shellWord(''), "''")
  })
})

describe('reportText()', () => {
  const NONE = { findings: [], hidden: [], made: [], notMade: [] }
  it('says that nothing is wrong only when every check was made', () => {
    const why = 'Cannot reach the agent'
    assert.equal(reportText({ ...NONE, made: ['DR1', 'DR2'] }), 'Nothing is wrong: 2 checks made')
    assert.equal(
      reportText({ ...NONE, made: ['DR1'], notMade: [{ code: 'DR2', why }] }),
      `Nothing is wrong as far as could be checked: 1 of 2 checks made\n\nnot checked: DR2: ${why}`,
    )
  })
  it('a name with a line break makes no line that looks like a command', () => {
    const finding = {
      code: 'DR44',
      title: 'x',
      severity: 'error',
      text: 'a\n  rm -rf /',
      commands: ['ls b\n'],
    } as const
    assert.equal(reportText({ ...NONE, findings: [finding] }), 'error DR44: a\\n  rm -rf /\n  ls b\\n')
  })
})

describe('a pipe instead of a file', () => {
  it('is a fault of it, and holds nobody up', () => {
    const dir = mkdtempSync(join(tmpdir(), 'pipes-'))
    try {
      const [file, list] = [join(dir, 'subnet.env'), join(dir, '10-x.conflist')]
      assert.equal(Bun.spawnSync(['mkfifo', file, list]).exitCode, 0)
      assert.deepEqual(readSubnetFile(file), { path: file, isThere: true, fault: 'it is no regular file' })
      const fault = `Cannot read ${list}: it is no regular file`
      assert.deepEqual(readLists(dir, []).files, [{ path: list, fault }])
      const packed = COLLECTORS.find((one) => one.file === 'cni/subnet-env.txt')
      assert.throws(() => packed?.get({ subnetFile: file } as Scene, new AbortController().signal), {
        message: 'it is no regular file',
      })
      assert.throws(() => listFiles(file), { code: 'ENOTDIR' })
    } finally {
      rmSync(dir, { recursive: true, force: true })
    }
  })
})
