import type { Backend } from '../../../agent/backend/backend.ts'
import { openBackend } from '../../../agent/backend/open.ts'
import { partsOf, ruleset } from '../../../agent/firewall/masquerade.ts'
import { allocate } from '../../../agent/lease/allocate.ts'
import type { Lease } from '../../../agent/lease/lease.ts'
import { type NetworkConf, parseNetworkConf } from '../../../agent/lease/network-configuration.ts'
import { describe as described, readSettings, settingsPath } from '../../../agent/settings/read.ts'
import type { Status } from '../../../agent/state/status.ts'
import { keysBelow } from '../../../agent/store/etcd/keys.ts'
import { View } from '../../../agent/store/etcd/view.ts'
import { leasesText } from '../../../cli/leases.ts'
import { handler } from '../../../lib/state/kinds/index.ts'
import type { Resource } from '../../../lib/state/resource.ts'
import { isSix } from '../../../lib/text/cidr.ts'
import { ValueError } from '../../../lib/text/errors.ts'
import type { Cidr } from '../../../lib/text/ip.ts'
import { parse } from '../../../lib/text/values.ts'
import { lease, uplink } from '../../support/cluster.ts'
import { matcher } from '../grammar.ts'
import type { Parts, Target } from '../target.ts'

// What the agent says to `ip` and `bridge`, and the files of sysctls.
const fits = matcher([
  'link add name <name>[ address <mac>][ mtu <number>][ up] type vxlan id <number> dev <name> local <ip> dstport <port> <learning> udpcsum[ gbp]',
  'link set dev <name> alias <agent>',
  'net/ipv6/conf/<name>/accept_ra = 0',
  'addr replace <cidr>[ nodad] dev <name>',
  'neigh replace <ip> lladdr <mac> dev <name> nud permanent protocol 112',
  'fdb replace <mac> dev <name> dst <ip> self permanent',
  'nexthop add id <number> via <ip> dev <name>[ onlink] proto 112',
  'route add <cidr> proto 112[ via <ip> dev <name>][ onlink][ nhid <number>]',
])
const SECRET = 'S3cret-S3cret'
const FACTS = { nexthops: false, instance: parse.network('default'), networks: ['0.0.0.0/0' as Cidr, '::/0' as Cidr] }
const DEVICES = /^(flannel|fl|flannel-v6|fl6)\.\d+$/
const peer = (n: number) => lease(n, { v4: { VNI: 1, VtepMAC: `02:00:00:00:00:0${n}` } }, 'vxlan')
const [SELF, UPLINK] = [peer(1), uplink(1)]

/** What the agent reads of others: the network's configuration, the nodes' leases, what its starter says. */
export const AGENT: readonly Target[] = [
  {
    name: 'net-conf.json',
    async feed({ conf }) {
      const read = parseNetworkConf(textOf(conf))
      const backend = await openBackend(read.backend.type)
      const options = backend.conf(read.backend.options)
      // As SIGHUP compares it, and as a new node chooses its subnet.
      Bun.deepEquals(parseNetworkConf(textOf(conf)), read)
      return [...wanted(backend, options, [peer(2), peer(3)]), ...firewall(read), ...subnets(read)]
    },
  },
  {
    name: 'leases',
    async feed(parts) {
      const view = seen(parts)
      const { leases, unreadable } = view.snapshot()
      const [bad] = unreadable
      const strange = unreadable.flatMap(({ why }) =>
        /\p{Cc}/u.test(why) || why.length > 1000 ? [`it is passed over with ${JSON.stringify(why.slice(0, 500))}`] : [],
      )
      for (const type of ['vxlan', 'host-gw']) {
        const backend = await openBackend(type)
        strange.push(
          ...wanted(backend, backend.conf(type === 'vxlan' ? { DirectRouting: leases.length % 2 === 0 } : {}), leases),
        )
      }
      JSON.stringify(view.snapshot())
      const wrong = [...strange, ...shown(leases)]
      // So that it is judged, and counted, as a refusal.
      if (wrong.length === 0 && bad) throw new ValueError(bad.why)
      return wrong
    },
  },
  {
    name: 'settings',
    feed({ argv, env, yaml }) {
      const whole = [argv, env, yaml].map(textOf).join('\n')
      // A mutation may put it elsewhere, where it is no secret any more.
      const isSecret =
        whole.split(SECRET).length === 2 &&
        /^etcd-password: S3cret-S3cret$|"FLANNELD_ETCD_PASSWORD":"S3cret-S3cret"/m.test(whole)
      const secret = (line: string) =>
        isSecret && line.includes(SECRET) ? [`the password is told: ${line.slice(0, 300)}`] : []
      const given = (part: Buffer | undefined) => readJson(textOf(part))
      const words = ((all) => (Array.isArray(all) ? all.map(word) : textOf(argv).split(' ')))(given(argv))
      const variables = Object.fromEntries(Object.entries(given(env) ?? {}).map(([name, value]) => [name, word(value)]))
      const file = { path: '/etc/plumb/agent.yaml', text: textOf(yaml) }
      try {
        settingsPath(words, variables)
        const settings = readSettings(words, variables, file, 'node-a')
        return [described(settings), ...settings.notes].flatMap((line) =>
          /\p{Cc}/u.test(line) ? [`a control character in ${JSON.stringify(line.slice(0, 300))}`] : secret(line),
        )
      } catch (cause) {
        const told = secret((cause as Error).message)
        if (told.length > 0) return told
        throw cause
      }
    },
  },
]

function word(value: unknown): string {
  return typeof value === 'string' ? value : shownAs(value).slice(0, 5000)
}

// What is nested too deep to be written is some other word.
function shownAs(value: unknown): string {
  try {
    return JSON.stringify(value)
  } catch {
    return 'deep'
  }
}

/** A part as text, empty when it is not there. */
export function textOf(part: Buffer | undefined): string {
  return part?.toString() ?? ''
}

/** A part as JSON; undefined when it is none. */
export function readJson(text: string): unknown {
  try {
    return JSON.parse(text) ?? undefined
  } catch {
    return undefined
  }
}

/** The parts as etcd has them: some keys below the prefix, told by a watch twice. */
function seen({ key = Buffer.of(), value = Buffer.of(), node = Buffer.of(), record = Buffer.of() }: Parts): View {
  const keys = keysBelow('/coreos.com/network')
  const view = new View(keys)
  const kv = (at: string, name: Buffer, text: Buffer, revision: bigint) => ({
    kv: {
      key: Buffer.concat([Buffer.from(`/coreos.com/network/${at}/`), name]),
      value: text,
      createRevision: 1n,
      modRevision: revision,
      lease: 7n,
    },
    type: 0,
  })
  for (const revision of [1n, 2n])
    view.apply(
      [
        kv('subnets', key, value, revision),
        kv('plumb/nodes', node, record, revision),
        kv('subnets', Buffer.from('10.244.3.0-24'), Buffer.from(GOOD), revision),
      ] as never,
      revision,
    )
  return view
}
const GOOD =
  '{"PublicIP":"192.0.2.3","PublicIPv6":null,"BackendType":"vxlan","BackendData":{"VNI":1,"VtepMAC":"02:00:00:00:00:03"}}'

function wanted(backend: Backend, options: unknown, peers: readonly Lease[]): string[] {
  const self = {
    ...SELF,
    backend: backend.type,
    data: backend.type === 'vxlan' ? backend.announce('a', UPLINK, options) : {},
  }
  // Twice, and with one more: what was known is compared.
  for (const nexthops of [false, true]) backend.want(self, peers.slice(1), UPLINK, options, { ...FACTS, nexthops })
  const { resources, problems } = backend.want(self, [...peers], UPLINK, options, FACTS)
  backend.want(
    self,
    peers.map((one) => ({ ...one })),
    UPLINK,
    options,
    FACTS,
  )
  return [
    ...resources.flatMap(strange),
    ...[...problems.values()].flatMap((one) =>
      /\p{Cc}/u.test(one) || one.length > 4096 ? [`a problem is told as ${JSON.stringify(one.slice(0, 500))}`] : [],
    ),
  ]
}

function strange(resource: Resource): string[] {
  const given = new Set([
    'eth0',
    'lo',
    ...('dev' in resource && DEVICES.test(resource.dev) ? [resource.dev] : []),
    ...('name' in resource && DEVICES.test(resource.name) ? [resource.name] : []),
    ...(/conf\/([^/]+)/.exec('name' in resource ? resource.name : '')?.slice(1) ?? []),
  ])
  return handler(resource.kind)
    .put(resource as never)
    .flatMap(({ text }) => (fits(text, given) ? [] : [`line ${JSON.stringify(text.slice(0, 300))}`]))
}

function firewall({ v4, v6 }: NetworkConf): string[] {
  const networks = [v4, v6].flatMap((pool) => (pool ? [pool.network] : []))
  const firewall = { networks, own: networks, masquerade: true, keep: [], random: true }
  partsOf(firewall)
  const odd = ruleset('plumb_agent', firewall)
    .split('\n')
    .filter(
      (line) =>
        !/^[\t ]*(table|delete table|set \w+ \{|chain \w+ \{|type |meta mark|ip6? |\}|$)[\w\s@=!;:{}<>"./,-]*$/.test(
          line,
        ),
    )
  return odd.map((line) => `rule ${JSON.stringify(line.slice(0, 300))}`)
}

function subnets(conf: NetworkConf): string[] {
  const found = allocate(conf, [])
  return Object.entries({ ...found }).flatMap(([family, cidr]) =>
    cidr !== undefined && isSix(cidr as Cidr) !== (family === 'v6') ? [`${family} is ${cidr}`] : [],
  )
}

// As `plumb leases` shows them on a terminal.
function shown(leases: readonly Lease[]): string[] {
  const status = {
    node: 'a',
    subnets: SELF.subnets,
    uplink: undefined,
    backend: 'vxlan',
    peers: leases,
    unreadable: 0,
  } as unknown as Status
  const text = leasesText(status)
  return /(?!\n)\p{Cc}/u.test(text) ? [`plumb leases shows ${JSON.stringify(text.slice(0, 500))}`] : []
}
