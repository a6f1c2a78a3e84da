// lane: netns
// Tests cli/demo.
import assert from 'node:assert/strict'
import { join } from 'node:path'
import { assertTold, DIST, itEndsOn, itFindsOut, machine, type Sabotage } from '../../support/demo.ts'
import { inNamespaces, type Namespace } from '../../support/harness.ts'

const PLUMB = join(DIST, 'plumb')

describe('plumb demo nodes', () => {
  it(
    'shows three nodes on vxlan, healing, and on host-gw, and leaves the machine as it was; without etcd it says so',
    inNamespaces(['node'], async ({ node }) => {
      const before = await machine(node)
      const told = await withoutEtcd(node, 'nodes')
      assertTold(told, 20)
      for (const line of [
        /^ {2}\/run\/store\/config +ok +\d+ ms {2}10\.244\.0\.0\/16 fd00:244::\/48, vxlan$/m,
        /^ {2}plumb agent, on each node +ok +\d+ ms {2}ready, with 2 peers each$/m,
        /^ {2}\/run\/store\/subnets\/ +ok +\d+ ms {2}3: 10\.244\.\d+\.0-24&fd00:244:0:[\da-f]+::-64 \.\.\.$/m,
        /^ {2}plumb cni add cbr0 app, on n2 +ok +\d+ ms {2}10\.244\.\d+\.2 fd00:244:0:[\da-f]+::2$/m,
        /^ {2}ping pod to pod, 1430 bytes +ok +\d+ ms {2}12 of 12 answered, over IPv4 and IPv6$/m,
        /^ {2}fault: flannel\.1 of n2 is deleted +ok +\d+ ms {2}ip -n n2 link delete flannel\.1$/m,
        /^ {2}the pings since then +ok +\d+ ms {2}\d of 12 were cut, all answer again in \d+ ms$/m,
        /^ {2}plumb status, on n2 +ok +\d+ ms {2}ready; \d+ things were put right$/m,
        /^ {2}host-gw instead, the agents anew +ok +\d+ ms {2}ready; nothing is left of the tunnels$/m,
        /^ {2}ping pod to pod, 1500 bytes +ok +\d+ ms {2}12 of 12 answered, over IPv4 and IPv6$/m,
        /^ {2}links of the nodes +6 +18 +12 +9$/m,
        /^ {2}routes, but for the kernel's +6 +18 +18 +6$/m,
        /^ {2}neighbours and forwarding entries +0 +24 +0 +0$/m,
        /^ {2}nft tables +0 +6 +3 +0$/m,
        /^ {2}leases in the store +0 +3 +3 +0$/m,
        /^Left out: nodes with their leases in etcd, which is not installed \(package etcd-server\)$/m,
      ])
        assert.match(told.stdout, line)
      assert.deepEqual(await machine(node), before)
    }),
  )

  it(
    'names the package of an etcd that was asked for and is not installed',
    inNamespaces(['node'], async ({ node }) => {
      const { status, stdout, stderr } = await withoutEtcd(node, '--store', 'etcd')
      assert.deepEqual([status, stdout], [1, ''])
      assert.match(stderr, /Cannot run the demo: etcd not found\n {2}install etcd-server\n/)
    }),
  )

  const broken: readonly Sabotage[] = [
    {
      what: 'the tool bridge fails',
      file: '/usr/sbin/bridge',
      script: '[[ "$*" = *-batch* ]] || exec REAL "$@"; echo no >&2; exit 1',
      step: 'plumb agent, on each node',
      said: /waited 10 s: the agent of n\d is not ready: Cannot program the peers: bridge .*: no\n.* agent: plumb /,
    },
    {
      what: 'pods get another MTU than the tunnel has',
      file: `${DIST}/flannel`,
      // Another file than the agent's: it would mend its own.
      script: `sed s/MTU=1430/MTU=1500/ /run/flannel/subnet.env > /run/other.env; exec -a flannel '${DIST}/vrf' < <(sed '1s|{|{"subnetFile":"/run/other.env",|')`,
      step: 'plumb cni add cbr0 web, on n1',
      said: /MTU of eth0 in web: saw 1500, want 1430/,
    },
    {
      what: 'only small packets pass',
      file: '/usr/bin/ping',
      script: '[[ "$*" = *-s\\ 1* ]] || exec REAL "$@"; exit 1',
      step: 'ping pod to pod, 1430 bytes',
      said: /no answer from 10\.244\.\d+\.2 to app/,
    },
    {
      what: 'the agent hears of nothing',
      file: '/usr/sbin/ip /usr/sbin/bridge /usr/sbin/nft',
      script: '[[ "$*" = *monitor* ]] || exec REAL "$@"; exec REAL "$@" >/dev/null',
      step: 'the pings since then',
      said: /waited 5 s: no answer from 10\.244\.\d+\.2 to /,
    },
    {
      what: 'nobody has deleted the tunnel',
      file: '/usr/sbin/ip',
      script: '[ "$*" = "link delete flannel.1" ] || exec REAL "$@"',
      step: 'the pings since then',
      said: /flannel\.1 of n2 is the same as before/,
    },
    {
      what: 'the tunnels stay when they are not wanted any more',
      file: '/usr/sbin/ip',
      script: '[[ "$*" = *-batch* ]] || exec REAL "$@"; sed "/^link delete dev flannel/d" | REAL "$@"',
      step: 'host-gw instead, the agents anew',
      said: /n1: flannel\.1/,
    },
    {
      what: 'cleanup keeps the rules',
      file: '/usr/sbin/nft',
      script:
        '[[ "$*" = *-f* ]] || exec REAL "$@"; text=$(cat); [[ "$text" = *plumb_agent && $(wc -l <<<"$text") -eq 2 ]] || exec REAL "$@" <<<"$text"',
      step: 'what the nodes have left',
      said: /what is new since the start: saw \[[^\]]*"\+ n1: table inet plumb_agent"/,
    },
  ]
  itFindsOut(broken, 'nodes', '--store', 'file')

  itEndsOn(
    'SIGINT',
    /plumb agent, on each node +ok/,
    [/plumb demo --inside/, /plumb agent --node-name n3/, /^sleep infinity/, /ip .*monitor/],
    'nodes',
    '--store',
    'file',
  )
})

/** Runs the demo on a machine without etcd, which this one may have. */
function withoutEtcd(node: Namespace, ...argv: readonly string[]) {
  const script =
    'mount -t tmpfs tmpfs /mnt; mkdir /mnt/up /mnt/work; mount -t overlay -o lowerdir=/usr/bin,upperdir=/mnt/up,workdir=/mnt/work overlay /usr/bin; rm -f /usr/bin/etcd; exec "$@"'
  return node.exec([
    'unshare',
    '--mount',
    '--propagation',
    'private',
    'sh',
    '-ec',
    script,
    'sh',
    PLUMB,
    'demo',
    ...argv,
  ])
}
