// lane: netns
// Tests agent/store and agent/parts.
import assert from 'node:assert/strict'
import { mkdirSync, rmSync, utimesSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { encodeValue } from '../../agent/lease/lease.ts'
import { ping, until } from '../support/harness.ts'
import { type Agent, type Cluster, fileStore, inCluster, type Node, subnetEnv } from '../support/nodes.ts'
import { draft } from '../support/suites/leases.ts'

const PLUMB = join(import.meta.dir, '../../dist/plumb')
const VXLAN = { Network: '10.244.0.0/16', SubnetMax: '10.244.99.0', Backend: { Type: 'vxlan' } }

/** Settings that nobody can mean, by where they stand, and what is said of them. */
const SETTINGS: readonly (readonly [
  argv: readonly string[],
  env: Readonly<Record<string, string>>,
  yaml: string | undefined,
  said: RegExp,
])[] = [
  [['--ip-mask'], {}, undefined, /--ip-mask: there is no such flag, did you mean "--ip-masq"\?/],
  [['--healthz-port=65536'], {}, undefined, /--healthz-port "65536": want a whole number, 0 to 65535/],
  [['--etcd-endpoints=ftp://a'], {}, undefined, /--etcd-endpoints "ftp:\/\/a": want a URL/],
  [['--iface-regex=(a'], {}, undefined, /--iface-regex "\(a": want a regular expression/],
  [
    ['--kube-subnet-mgr', '--store=etcd'],
    {},
    undefined,
    /--kube-subnet-mgr true: want --store=kube with it, not --store=etcd/,
  ],
  [[], { FLANNELD_IP_MASQ: 'ja' }, undefined, /FLANNELD_IP_MASQ "ja": want true or false/],
  [
    [],
    { FLANNELD_SUBNET_LEASE_RENEW_MARGIN: '1440' },
    undefined,
    /FLANNELD_SUBNET_LEASE_RENEW_MARGIN "1440": want a whole number, 1 to 1439/,
  ],
  [[], {}, 'store: etcd\nip-masq: maybe\n', /agent\.yaml:2:10: ip-masq "maybe": want true or false/],
  [[], {}, 'ifaces: eth0\n', /agent\.yaml:1:1: there is no setting "ifaces" for a file, did you mean "iface"\?/],
  [[], {}, 'iface: "eth0\n', /agent\.yaml:2:1: Missing closing "quote/],
  [['--config=/no/such/file'], {}, undefined, /--config \/no\/such\/file: there is no such file/],
]

/** Networks that cannot be, row by row of flannel's table, and what is said of them. */
const CONFIGS: readonly (readonly [text: string | object, said: RegExp])[] = [
  ['{"Network":', /want JSON such as/],
  [{}, /Network: it is missing; want a network such as 10\.244\.0\.0\/16, or "EnableIPv4": false/],
  [{ Network: 'ten' }, /Network "ten": want an IPv4 network/],
  [{ Network: '10.1.0.0/29' }, /Network "10\.1\.0\.0\/29": want \/28 or shorter/],
  [{ Network: '10.1.0.0/16', EnableIPv4: false }, /EnableIPv4 and EnableIPv6: both are false/],
  [{ Network: '10.1.0.0/16', EnableIPv6: true }, /IPv6Network: it is missing/],
  [
    { Network: '10.1.0.0/16', EnableIPv6: true, IPv6Network: 'fd00::/125' },
    /IPv6Network "fd00::\/125": want \/124 or shorter/,
  ],
  [{ Network: '10.1.0.0/16', SubnetLen: 31 }, /SubnetLen 31: want 18 to 30/],
  [{ Network: '10.1.0.0/16', SubnetLen: 17 }, /SubnetLen 17: want 18 to 30/],
  [
    { Network: '10.1.0.0/16', EnableIPv6: true, IPv6Network: 'fd00::/48', IPv6SubnetLen: 127 },
    /IPv6SubnetLen 127: want 50 to 126/,
  ],
  [
    { Network: '10.1.0.0/16', SubnetMin: '10.1.0.1' },
    /SubnetMin "10\.1\.0\.1": want the first address of a \/24, here 10\.1\.0\.0/,
  ],
  [{ Network: '10.1.0.0/16', SubnetMin: '10.2.0.0' }, /SubnetMin "10\.2\.0\.0": want an address in 10\.1\.0\.0\/16/],
  [{ Network: '10.1.0.0/16', SubnetMax: '10.2.0.0' }, /SubnetMax "10\.2\.0\.0": want an address in 10\.1\.0\.0\/16/],
  [
    { Network: '10.1.0.0/16', SubnetMin: '10.1.9.0', SubnetMax: '10.1.8.0' },
    /SubnetMax "10\.1\.8\.0": want an address not before SubnetMin, 10\.1\.9\.0/,
  ],
  [{ Network: '10.1.0.0/16', EnableIPv4: 'yes' }, /EnableIPv4 "yes": want true or false/],
  [{ Network: '10.1.0.0/16', Backend: { Type: 'ipsec' } }, /ipsec/],
  [{ Network: '10.1.0.0/16', Backend: { Type: 'udp', Port: 70_000 } }, /Port 70000: want/],
  [{ Network: '10.1.0.0/16', Backend: { Type: '../vxlan' } }, /vxlan/],
  [{ Network: '10.1.0.0/16', Backend: { Type: 'vxlan', VNI: 0 } }, /VNI 0: want/],
]

/** Leases that cannot be read, and what is said of them. */
const LEASES: Readonly<Record<string, readonly [key: string, value: string, said: RegExp]>> = {
  'a key that is none': [
    'hello',
    encodeValue(draft('', 120)),
    /passed over "hello" in the store: .*want a subnet's key such as/,
  ],
  'a key of another spelling': [
    '10.244.121.7-24',
    encodeValue(draft('', 121)),
    /passed over "10\.244\.121\.7-24" in the store: .*want a subnet's key/,
  ],
  'a value that is no JSON': [
    '10.244.122.0-24',
    '{"PublicIP":',
    /passed over "10\.244\.122\.0-24" in the store: .*want JSON/,
  ],
  'an address that is none': [
    '10.244.123.0-24',
    '{"PublicIP":"::1"}',
    /passed over "10\.244\.123\.0-24" in the store: Cannot read PublicIP "::1": want an IPv4 address/,
  ],
  'no address': [
    '10.244.124.0-24',
    '{}',
    /passed over "10\.244\.124\.0-24" in the store: Cannot read PublicIP: it is missing/,
  ],
  'a MAC that is none': [
    '10.244.125.0-24',
    '{"PublicIP":"172.30.0.125","BackendType":"vxlan","BackendData":{"VNI":1,"VtepMAC":"x; reboot"}}',
    /10\.244\.125\.0\/24.*VtepMAC/,
  ],
  'another backend': [
    '10.244.126.0-24',
    '{"PublicIP":"172.30.0.126","BackendType":"wireguard"}',
    /10\.244\.126\.0\/24.*wireguard/,
  ],
}

/**
 * Leases of subnets that no peer can have, with the last number of the address that they announce, and what is said of
 * them.
 */
const REFUSED: readonly (readonly [key: string, last: number, said: RegExp])[] = [
  ['8.0.0.0-5', 120, /overlaps 10\.244\.\d+\.0\/24, this node's own/],
  [
    '10.9.0.0-24',
    121,
    /outside the network 10\.244\.0\.0\/16; want a subnet of it, or "PeerNetworks" of net-conf\.json to name its network/,
  ],
  ['172.30.0.0-24', 122, /holds 172\.30\.0\.1, this node's address on eth0/],
  ['172.30.0.128-25', 222, /holds 172\.30\.0\.222, the address that it announces/],
]

describe('plumb agent and what is malformed', () => {
  it(
    'settings: --check-config and a start say the same one line, and end with status 2',
    inCluster(
      1,
      (cluster) => fileStore(cluster, VXLAN),
      async ({ nodes, dir }) => {
        const [{ ns }] = nodes as [Node]
        for (const [argv, env, yaml, said] of SETTINGS) {
          if (yaml !== undefined) writeFileSync(join(dir, 'agent.yaml'), yaml)
          const words = [...argv, ...(yaml === undefined ? [] : ['--config', join(dir, 'agent.yaml')])]
          for (const only of [['--check-config'], []]) {
            const { status, stdout, stderr } = await ns.exec([PLUMB, 'agent', ...words, ...only], { env })
            assert.deepEqual([status, stdout, stderr.trim().split('\n').length], [2, '', 1], stderr)
            assert.match(stderr, said)
          }
        }
      },
    ),
  )

  it(
    'network configurations: each row of flannel’s table ends the start with one line that names key, value and what would be right',
    inCluster(
      1,
      ({ dir }) => ['--store', 'file', '--file-store-dir', join(dir, 'store')],
      async ({ nodes, dir }, test) => {
        test.timeout(60_000)
        const [one] = nodes as [Node]
        mkdirSync(join(dir, 'store'))
        for (const [conf, said] of CONFIGS) {
          writeFileSync(join(dir, 'store/config'), typeof conf === 'string' ? conf : JSON.stringify(conf))
          const agent = one.agent()
          assert.equal(await agent.ended, 1, `${JSON.stringify(conf)} ${agent.log()}`)
          const lines = agent.log().trim().split('\n').slice(1)
          assert.equal(lines.length, 1, agent.log())
          assert.match(lines[0] as string, said)
          assert.equal(subnetEnv(one), undefined)
        }
      },
    ),
  )

  it(
    'network configurations: what is left out is as with flannel, keys are taken in any case, and what means nothing is noted once',
    inCluster(
      1,
      ({ dir }) => ['--store', 'file', '--file-store-dir', join(dir, 'store')],
      async ({ nodes, dir }, test) => {
        test.timeout(60_000)
        const [one] = nodes as [Node]
        for (const [conf, subnet, v6] of [
          [{ network: '10.1.0.0/16', Netwrk: 'x' }, /^10\.1\.([1-9]|\d\d+)\.1\/24$/, undefined],
          [{ Network: '10.1.0.0/24' }, /^10\.1\.0\.(65|129|193)\/26$/, undefined],
          [{ Network: '10.1.0.0/28', SubnetLen: 30 }, /^10\.1\.0\.(5|9|13)\/30$/, undefined],
          [
            { Network: '10.1.0.0/16', SubnetMin: '10.1.7.0', SubnetMax: '10.1.7.0', backend: { type: 'HOST-GW' } },
            /^10\.1\.7\.1\/24$/,
            undefined,
          ],
          [
            { Network: '10.1.0.0/16', EnableIPv6: true, IPv6Network: 'fd01::/48' },
            /^10\.1\.([1-9]|\d\d+)\.1\/24$/,
            /^fd01:0:0:(?!0:)[\da-f]+::1\/64$/,
          ],
          [
            { Network: '10.1.0.0/16', EnableIPv6: true, IPv6Network: 'fd01::/64' },
            /^10\.1\./,
            /^fd01::[48c]000:0:0:1\/66$/,
          ],
        ] as const) {
          for (const folder of [join(dir, 'store'), one.dir]) rmSync(folder, { recursive: true, force: true })
          for (const folder of [join(dir, 'store'), one.dir]) mkdirSync(folder)
          writeFileSync(join(dir, 'store/config'), JSON.stringify(conf))
          const agent = one.agent()
          await agent.ready(20_000)
          assert.match(subnetEnv(one)?.['FLANNEL_SUBNET'] ?? '', subnet)
          if (v6) assert.match(subnetEnv(one)?.['FLANNEL_IPV6_SUBNET'] ?? '', v6)
          assert.equal(
            told(agent, /network's configuration: .*Netwrk.*did you mean/),
            'Netwrk' in conf ? 1 : 0,
            agent.log(),
          )
          await agent.stop()
        }
      },
    ),
  )

  it(
    'leases: each is passed over with one line, the others are served, and it is served when it is mended',
    inCluster(
      2,
      (cluster) => fileStore(cluster, VXLAN),
      async (cluster, test) => {
        test.timeout(60_000)
        const [one, two] = cluster.nodes as [Node, Node]
        for (const [key, value] of Object.values(LEASES)) put(cluster, key, value)
        const [agent] = [one.agent(), two.agent()]
        await agent.ready(30_000)
        const address = (await until(() => subnetEnv(two)))?.['FLANNEL_SUBNET']?.replace(/\.1\/24$/, '.0') as string
        await until(() => ping(one.ns, address), 10_000)
        // More news, which is no reason to say it again.
        for (const n of [130, 131, 132]) {
          put(cluster, `10.244.${n}.0-24`, encodeValue(draft('', n)))
          await until(async () => (await one.ns.ip('route', 'show', 'proto', '112')).includes(`10.244.${n}.0/24`))
        }
        for (const [what, [, , said]] of Object.entries(LEASES))
          assert.equal(told(agent, said), 1, `${what}: ${agent.log()}`)
        const status = await agent.status()
        assert.deepEqual([status?.ready, status?.unreadable], [true, 5])
        put(cluster, '10.244.122.0-24', encodeValue(draft('', 122)))
        await until(async () => (await one.ns.ip('route', 'show', 'proto', '112')).includes('10.244.122.0/24'))
        assert.equal((await agent.status())?.unreadable, 4)
      },
    ),
  )

  it(
    'what is no regular file among the leases, or instead of the configuration, is named and holds nothing up',
    inCluster(
      1,
      ({ dir }) => ['--store', 'file', '--file-store-dir', join(dir, 'store')],
      async (cluster, test) => {
        test.timeout(60_000)
        const [one] = cluster.nodes as [Node]
        const store = join(cluster.dir, 'store')
        for (const folder of ['subnets', 'nodes']) mkdirSync(join(store, folder), { recursive: true })
        writeFileSync(join(store, 'config'), JSON.stringify(VXLAN))
        const odd = async (...names: string[]) =>
          assert.equal((await one.ns.exec(['mkfifo', ...names.map((name) => join(store, name))])).status, 0)
        await odd('subnets/10.244.120.0-24', 'subnets/odd', 'nodes/n9')
        assert.equal((await one.ns.exec(['mknod', join(store, 'subnets/10.244.121.0-24'), 'c', '1', '5'])).status, 0)
        const listening = Bun.listen({ unix: join(store, 'subnets/10.244.122.0-24'), socket: { data() {} } })
        put(cluster, '10.244.123.0-24', encodeValue(draft('', 123)))
        const agent = one.agent()
        try {
          const status = await agent.ready(30_000)
          assert.deepEqual([status.unreadable, status.peers.map(({ subnets }) => subnets.v4)], [4, ['10.244.123.0/24']])
          assert.equal(told(agent, /passed over "10\.244\.120\.0-24" in the store: .* a FIFO; want a regular file/), 1)
          assert.equal(
            told(agent, /passed over "10\.244\.121\.0-24" in the store: .* a device; want a regular file/),
            1,
          )
          assert.equal(
            told(agent, /passed over "10\.244\.122\.0-24" in the store: .* a socket; want a regular file/),
            1,
          )
          assert.equal(told(agent, /passed over "odd"/), 1)
          // One that comes while the agent runs.
          await odd('subnets/10.244.124.0-24')
          await until(async () => (await agent.status())?.unreadable === 5)
        } finally {
          listening.stop()
        }
        await agent.stop()
        rmSync(join(store, 'config'))
        await odd('config')
        const again = one.agent()
        await until(async () =>
          /config is a FIFO; want a regular file/.test((await again.status())?.reasons.join() ?? ''),
        )
      },
    ),
  )

  it(
    'leases that would take the underlay, this node’s own subnet or another’s are refused with a reason; the node is ready, the others are served',
    inCluster(
      1,
      (cluster) => fileStore(cluster, VXLAN),
      async (cluster, test) => {
        test.timeout(60_000)
        const [one] = cluster.nodes as [Node]
        const agent = one.agent()
        await agent.ready(30_000)
        put(cluster, '10.244.130.0-24', encodeValue(draft('', 130)))
        for (const [key, n] of REFUSED) put(cluster, key, encodeValue(draft('', n)))
        put(cluster, '10.244.131.0-24', encodeValue(draft('', 131)))
        put(cluster, '10.244.128.0-17', encodeValue(draft('', 132)))
        // By its key it is the first.
        for (const [seconds, key] of ['10.244.130.0-24', '10.244.131.0-24', '10.244.128.0-17'].entries())
          utimesSync(join(cluster.dir, 'store/subnets', key), 1, seconds + 1)
        const status = await until(async () => {
          const seen = await agent.status()
          return seen?.ready && seen.peers.filter(({ problem }) => problem).length === REFUSED.length + 1
            ? seen
            : undefined
        })
        assert.equal(status?.state, 'degraded')
        const problems = Object.fromEntries(status?.peers.map(({ subnets, problem }) => [subnets.v4, problem]) ?? [])
        assert.equal(problems['10.244.130.0/24'], undefined)
        assert.equal(problems['10.244.128.0/17'], 'it overlaps the older lease 10.244.130.0/24 of node 172.30.0.130')
        for (const [key, , said] of REFUSED) assert.match(problems[key.replace('-', '/')] ?? '', said, key)
        const routes = await one.ns.ip('route', 'show', 'proto', '112')
        assert.deepEqual([...routes.matchAll(/^\S+/gm)].map(String).sort(), ['10.244.130.0/24', '10.244.131.0/24'])
        assert.equal(
          (await one.ns.exec([PLUMB, 'leases', '--socket', join(one.dir, 'agent.sock')])).stdout.match(
            /outside the network 10\.244\.0\.0\/16/g,
          )?.length,
          1,
        )
        put(cluster, '10.244.133.0-24', encodeValue(draft('', 133)))
        await until(async () => (await one.ns.ip('route', 'show', 'proto', '112')).includes('10.244.133.0/24'))
        put(cluster, '10.244.110.0-24', encodeValue(draft('', 1)))
        await until(async () =>
          (await agent.status())?.peers.some(
            ({ problem }) => problem === "it announces 172.30.0.1, this node's own address",
          ),
        )
        // Its own subnet, which only the running agent knows.
        const own = (subnetEnv(one)?.['FLANNEL_SUBNET'] ?? '').replace(/\.1\/24$/, '.128')
        put(cluster, `${own}-25`, encodeValue(draft('', 134)))
        await until(async () =>
          (await agent.status())?.peers.some(({ problem }) => problem?.endsWith("this node's own")),
        )
        assert.equal(await one.ns.ip('route', 'show', `${own}/25`), '')
      },
    ),
  )
})

function put({ dir }: Cluster, key: string, value: string): void {
  mkdirSync(join(dir, 'store/subnets'), { recursive: true })
  writeFileSync(join(dir, 'store/subnets', key), value)
}

function told(agent: Agent, what: RegExp): number {
  return agent
    .log()
    .split('\n')
    .filter((line) => what.test(line)).length
}
