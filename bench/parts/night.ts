import { renameSync, rmSync, symlinkSync } from 'node:fs'
import { join } from 'node:path'
import { DIST, doctor, type Fixture, sh, withFixture } from '../../test/support/doctor.ts'
import { hostOf, makers } from '../../test/support/faults.ts'
import { subnetEnv } from '../../test/support/nodes.ts'
import type { Bench } from '../part.ts'
import { short, type Table } from '../report.ts'

/** A fault as somebody makes it at night, and how it ends. */
interface Fault {
  readonly what: string
  /** The check that is about it. */
  readonly code: string
  readonly make: (fixture: Fixture) => unknown
  /** Nothing for what the agent mends. */
  readonly mend?: (fixture: Fixture) => unknown
  /** What `plumb status` says of it: a sentence, or a repair. */
  readonly says: RegExp
}

const DROPS = 'table inet other { chain first { type filter hook forward priority 5; policy drop; }; }'
const on =
  (script: string) =>
  ({ node }: Fixture) =>
    sh(node.ns, script)
const onHub =
  (script: string) =>
  ({ hub }: Fixture) =>
    sh(hub, script)
const aside = ({ node }: Fixture) => join(node.dir, 'aside')
const FAULTS: readonly Fault[] = [
  { what: 'forwarding is switched off', code: 'DR1', make: on('sysctl -qw net.ipv4.ip_forward=0'), says: /ip_forward/ },
  {
    what: 'forwarding of IPv6 is switched off',
    code: 'DR1',
    make: on('sysctl -qw net.ipv6.conf.all.forwarding=0'),
    says: /conf\.all\.forwarding/,
  },
  {
    what: 'IPv6 is disabled on the bridge',
    code: 'DR7',
    make: on('sysctl -qw net.ipv6.conf.cni0.disable_ipv6=1'),
    mend: on('sysctl -qw net.ipv6.conf.cni0.disable_ipv6=0'),
    says: /disable_ipv6|cni0/,
  },
  {
    what: 'a table of a firewall drops what is forwarded',
    code: 'DR9',
    make: on(`nft '${DROPS}'`),
    mend: on('nft delete table inet other'),
    says: /inet other first/,
  },
  {
    what: 'FORWARD gets the policy DROP, as by Docker',
    code: 'DR9',
    make: on('iptables -P FORWARD DROP'),
    mend: on('iptables -P FORWARD ACCEPT'),
    says: /FORWARD|forward/,
  },
  {
    what: 'a rule in legacy iptables drops',
    code: 'DR12',
    make: on('iptables-legacy -A INPUT -s 198.51.100.1 -j DROP'),
    mend: on('iptables-legacy -F INPUT'),
    says: /legacy/,
  },
  {
    what: 'somebody masquerades pods',
    code: 'DR14',
    make: makers.masquerade,
    mend: on('iptables -t nat -D POSTROUTING -s 10.244.0.0/16 -j MASQUERADE'),
    says: /masquerades/,
  },
  {
    what: 'a firewall of the node drops the tunnel',
    code: 'DR17',
    make: makers.droppedTunnel,
    mend: on('iptables -D INPUT -p udp --dport 8472 -j DROP'),
    says: /does not answer|unreachable/,
  },
  {
    what: 'a firewall between the nodes drops the tunnel',
    code: 'DR17',
    make: onHub("nft 'table bridge cut { chain f { type filter hook forward priority 0; udp dport 8472 drop; }; }'"),
    mend: onHub('nft delete table bridge cut'),
    says: /does not answer|unreachable/,
  },
  {
    what: 'a link between the nodes takes 1400 bytes',
    code: 'DR19',
    make: onHub('ip link set dev port2 mtu 1400'),
    mend: onHub('ip link set dev port2 mtu 1500'),
    says: /full size/,
  },
  {
    what: 'the cable of the uplink is pulled',
    code: 'DR24',
    make: onHub('ip link set dev port1 down'),
    mend: onHub('ip link set dev port1 up'),
    says: /eth0|carrier/,
  },
  {
    what: 'subnet.env is deleted',
    code: 'DR25',
    make: ({ node }) => rmSync(join(node.dir, 'subnet.env')),
    says: /subnet\.env/,
  },
  {
    what: 'the bridge gets another address',
    code: 'DR28',
    make: makers.bridgeAddress,
    mend: on('ip addr del 10.99.0.1/24 dev cni0'),
    says: /10\.99\.0\.1/,
  },
  {
    what: 'a VPN adds a rule before ours',
    code: 'DR32',
    make: makers.ruleOfVpn,
    mend: on('ip rule del priority 5270; ip route flush table 52'),
    says: /5270|does not answer|unreachable/,
  },
  {
    what: 'a more specific route to a pod',
    code: 'DR32',
    make: makers.routeToPod,
    mend: (fixture) => sh(fixture.node.ns, `ip route del ${hostOf(fixture)} dev lo`),
    says: /route/,
  },
  {
    what: 'the folder of networks is moved away',
    code: 'DR38',
    make: (fixture) => renameSync(fixture.lists, aside(fixture)),
    mend: (fixture) => renameSync(aside(fixture), fixture.lists),
    says: /conflist/,
  },
  {
    what: 'another network comes first',
    code: 'DR39',
    make: makers.otherNetwork,
    mend: ({ lists }) => rmSync(join(lists, '05-other.conflist')),
    says: /05-other/,
  },
  {
    what: 'a plugin loses its right to be run',
    code: 'DR40',
    make: makers.lockedPlugin,
    mend: ({ bin }) => {
      rmSync(join(bin, 'bridge'))
      symlinkSync(join(DIST, 'bridge'), join(bin, 'bridge'))
    },
    says: /bridge is not executable/,
  },
  {
    what: 'the link of a pod is set down',
    code: 'DR43',
    make: makers.podLinkDown,
    says: /veth/,
  },
  { what: 'flannel.1 is deleted', code: 'DR21', make: on('ip link del flannel.1'), says: /flannel\.1/ },
  {
    what: 'a rule set is flushed',
    code: 'DR15',
    make: on('nft flush $(nft list tables | grep -o "table inet plumb_.*" | head -1)'),
    says: /plumb_agent|nft|rule/,
  },
  {
    what: 'the route to a node is deleted',
    code: 'DR32',
    make: (fixture) =>
      sh(fixture.node.ns, `ip route del ${(subnetEnv(fixture.other)?.['FLANNEL_SUBNET'] ?? '').replace('.1/', '.0/')}`),
    says: /route/,
  },
]
const [COUNT, WITHIN_MS, CALM_MS] = [20, 10_000, 60_000]

/** Twenty faults at random: what plumb status and plumb doctor say of each within ten seconds. */
export async function night(bench: Bench): Promise<Table> {
  const faults = shuffled(FAULTS).slice(0, bench.times(COUNT))
  const rows: string[][] = []
  const work = withFixture(async (fixture) => {
    for (const fault of faults) {
      await calm(fixture)
      const before = (await fixture.agent.status())?.repairs.at(-1)?.at ?? 0
      await fault.make(fixture)
      const found = await look(fixture, fault, before)
      await fault.mend?.(fixture)
      rows.push([fault.what, fault.code, ...found])
    }
  })
  // The tests' fixture wants a context of mocha for its time limit.
  await work.call({ timeout() {} } as never)
  const count = (column: number) => rows.filter((row) => row[column] !== 'nothing').length
  return {
    title: 'Faults at night',
    method: `${faults.length} of ${FAULTS.length} faults, in an order that nobody knows, on a node with an agent and a pod beside another node; probes every 2 s. What \`plumb status\` and \`plumb doctor\` say within ${WITHIN_MS / 1000} s, and after how many seconds. A repair by the agent stands in the status, and the doctor has nothing more to find. The status named ${count(2)}, the doctor or a repair ${count(3)}.`,
    head: ['fault', 'check', 'plumb status', 'plumb doctor'],
    rows,
    bars: [],
  }
}

async function look(fixture: Fixture, { code, says }: Fault, before: number): Promise<[string, string]> {
  const begun = performance.now()
  const at = () => `${short((performance.now() - begun) / 1000)} s`
  let [status, named] = ['nothing', 'nothing']
  while (performance.now() - begun < WITHIN_MS && (status === 'nothing' || named === 'nothing')) {
    const now = await fixture.agent.status()
    const repair = now?.repairs.find((one) => one.at > before && says.test(one.what))
    const text = [...(now?.reasons ?? []), ...(now?.degraded ?? [])].find((one) => says.test(one))
    if (status === 'nothing' && repair) status = `repaired, ${at()}`
    if (status === 'nothing' && text !== undefined) status = `${now?.state}, ${at()}`
    if (status.startsWith('repaired') && named === 'nothing') named = 'mended before'
    else if (named === 'nothing') {
      const { findings } = await doctor(fixture)
      if (findings.some((one) => one.code === code)) named = `${code}, ${at()}`
    }
    await Bun.sleep(200)
  }
  return [status, named]
}

async function calm(fixture: Fixture): Promise<void> {
  for (const end = performance.now() + CALM_MS; performance.now() < end; await Bun.sleep(500)) {
    const { findings } = await doctor(fixture)
    if (findings.length === 0 && (await fixture.agent.status())?.state === 'ready') return
  }
  throw new Error(`the node is not well again: ${JSON.stringify((await doctor(fixture)).findings)}`)
}

function shuffled<T>(all: readonly T[]): T[] {
  return all
    .map((one) => ({ one, at: Math.random() }))
    .sort((a, b) => a.at - b.at)
    .map(({ one }) => one)
}
