// lane: quick
// Tests agent/settings.
import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { parse } from 'yaml'
import { FLAGS, type FlagName } from '../../../agent/settings/flags.ts'
import { readSettings, settingRows, settingsPath } from '../../../agent/settings/read.ts'
import type { Settings } from '../../../agent/settings/settings.ts'

type Env = Readonly<Record<string, string>>

/** flanneld's flags and their defaults as `flanneld --help` has them (0.28.9). */
const FLANNELD: Readonly<Record<string, string>> = {
  'etcd-endpoints': 'http://127.0.0.1:4001,http://127.0.0.1:2379',
  'etcd-prefix': '/coreos.com/network',
  'etcd-keyfile': '',
  'etcd-certfile': '',
  'etcd-cafile': '',
  'etcd-username': '',
  'etcd-password': '',
  iface: '',
  'iface-regex': '',
  'iface-can-reach': '',
  'subnet-file': '/run/flannel/subnet.env',
  'public-ip': '',
  'public-ipv6': '',
  'subnet-lease-renew-margin': '60',
  'ip-masq': 'false',
  'ip-masq-fully-random-disable': 'false',
  'kube-subnet-mgr': 'false',
  'kube-api-url': '',
  'kube-annotation-prefix': 'flannel.alpha.coreos.com',
  'kubeconfig-file': '',
  version: 'false',
  'healthz-ip': '0.0.0.0',
  'healthz-port': '0',
  'iptables-resync': '5',
  'iptables-forward-rules': 'true',
  'ip-blackhole-route': 'false',
  'net-config-path': '/etc/kube-flannel/net-conf.json',
  'set-node-network-unavailable': 'true',
  v: '0',
  vmodule: '',
  log_backtrace_at: '',
}

const DEFAULTS: Settings = {
  node: 'host-a',
  store: { kind: 'file', dir: '/var/lib/plumb/store', netConf: '/etc/kube-flannel/net-conf.json' },
  uplink: { interfaces: [], patterns: [], public: {}, tunnel: {}, advertise: {} },
  network: {
    txChecksumOffload: 'auto',
    blackhole: false,
    allowOverlap: false,
    allowExtension: false,
    resyncMs: 900_000,
    quietMs: 10,
    probeMs: 30_000,
    fastPath: 'auto',
  },
  firewall: {
    masquerade: false,
    randomFully: true,
    forward: true,
    nonMasquerade: [],
    replaceFlannel: false,
    tunnelSources: [],
  },
  metricsPerPeer: false,
  files: {
    subnetEnv: '/run/flannel/subnet.env',
    stateDir: '/var/lib/plumb',
    install: false,
    pods: 'bridge',
    confDir: '/etc/cni/net.d',
    binDir: '/opt/cni/bin',
    socket: '/run/plumb/agent.sock',
    policySocket: '/run/plumb/policy.sock',
  },
  enforcement: { isLogged: false, isAudit: false, keepsEstablished: false },
  logFormat: 'plain',
  status: { host: '127.0.0.1', port: 9469 },
  notes: [],
  said: [],
} as unknown as Settings
const ETCD = {
  kind: 'etcd',
  endpoints: ['http://127.0.0.1:4001', 'http://127.0.0.1:2379'],
  prefix: '/coreos.com/network',
  tls: {},
  renewMarginMs: 3_600_000,
}

/** Per setting three values, as they are written, and where in the settings they show. */
const EACH: Readonly<Partial<Record<FlagName, readonly [path: string, ...values: (readonly [string, unknown])[]]>>> = {
  'etcd-endpoints': [
    'store.endpoints',
    ['https://a:1,https://b:2/', ['https://a:1', 'https://b:2']],
    ['http://c:3', ['http://c:3']],
    ['[fd00::1]:2379', ['http://[fd00::1]:2379']],
  ],
  'etcd-prefix': ['store.prefix', ['/a', '/a'], ['/b/', '/b'], ['c//d', 'c/d']],
  'etcd-cafile': ['store.tls.authority', ['/a', '/a'], ['/b', '/b'], ['/c', '/c']],
  'etcd-username': ['store.user.name', ['a', 'a'], ['b', 'b'], ['c', 'c']],
  iface: ['uplink.interfaces', ['eth0', ['eth0']], ['10.0.0.1', ['10.0.0.1']], ['a,b', ['a,b']]],
  'iface-regex': ['uplink.patterns', ['^eth', [/^eth/]], ['10\\.0', [/10\.0/]], ['(?i)ETH', [/ETH/i]]],
  'iface-can-reach': ['uplink.canReach', ['10.0.0.1', '10.0.0.1'], ['10.0.0.2', '10.0.0.2'], ['FD00::1', 'fd00::1']],
  'subnet-file': ['files.subnetEnv', ['/a', '/a'], ['/b', '/b'], ['c', 'c']],
  'public-ip': ['uplink.public.v4', ['10.0.0.1', '10.0.0.1'], ['10.0.0.2', '10.0.0.2'], ['10.0.0.3', '10.0.0.3']],
  'public-ipv6': ['uplink.public.v6', ['fd00::1', 'fd00::1'], ['fd00::2', 'fd00::2'], ['fd00::3', 'fd00::3']],
  'ip-masq': ['firewall.masquerade', ['true', true], ['0', false], ['T', true]],
  'ip-masq-fully-random-disable': ['firewall.randomFully', ['true', false], ['F', true], ['1', false]],
  'ip-blackhole-route': ['network.blackhole', ['true', true], ['0', false], ['T', true]],
  'iptables-forward-rules': ['firewall.forward', ['False', false], ['True', true], ['f', false]],
  'healthz-port': ['status.port', ['8081', 8081], ['8082', 8082], ['8083', 8083]],
  'net-config-path': ['store.netConf', ['/a', '/a'], ['/b', '/b'], ['/c', '/c']],
  'kubeconfig-file': ['store.kubeconfig', ['/a', '/a'], ['/b', '/b'], ['/c', '/c']],
  'kube-api-url': [
    'store.server',
    ['https://a:1', 'https://a:1'],
    ['http://b', 'http://b'],
    ['https://c/path', 'https://c/path'],
  ],
  'kube-annotation-prefix': [
    'store.annotationPrefix',
    ['a.org', 'a.org/'],
    ['b.org/net', 'b.org/net-'],
    ['c.org/net-', 'c.org/net-'],
  ],
  'set-node-network-unavailable': ['store.setCondition', ['false', false], ['true', true], ['0', false]],
  'node-name': ['node', ['a', 'a'], ['b-1.c', 'b-1.c'], ['C_2', 'C_2']],
  store: ['store.kind', ['etcd', 'etcd'], ['file', 'file'], ['etcd', 'etcd']],
  'file-store-dir': ['store.dir', ['/a', '/a'], ['/b', '/b'], ['/c', '/c']],
  'state-dir': ['files.stateDir', ['/a', '/a'], ['/b', '/b'], ['/c', '/c']],
  'tunnel-address': [
    'uplink.tunnel',
    ['10.0.0.1', { v4: '10.0.0.1' }],
    ['fd00::1, 10.0.0.2', { v4: '10.0.0.2', v6: 'fd00::1' }],
    ['fd00::3', { v6: 'fd00::3' }],
  ],
  'advertise-address': [
    'uplink.advertise',
    ['10.0.0.1', { v4: '10.0.0.1' }],
    ['fd00::1,10.0.0.2', { v4: '10.0.0.2', v6: 'fd00::1' }],
    ['fd00::3', { v6: 'fd00::3' }],
  ],
  'non-masquerade-cidrs': [
    'firewall.nonMasquerade',
    ['10.0.0.0/8', ['10.0.0.0/8']],
    ['10.1.0.0/16,fd00::/8', ['10.1.0.0/16', 'fd00::/8']],
    ['', []],
  ],
  'replace-flannel': ['firewall.replaceFlannel', ['true', true], ['false', false], ['1', true]],
  'tunnel-sources': [
    'firewall.tunnelSources',
    ['leases', []],
    ['leases,10.1.2.3/16,fd00::/8', ['10.1.0.0/16', 'fd00::/8']],
    ['10.0.0.0/8,any', 'any'],
  ],
  'install-cni': ['files.install', ['true', true], ['false', false], ['1', true]],
  pods: ['files.pods', ['bridge', 'bridge'], ['routed', 'routed'], ['bridge', 'bridge']],
  'cni-conf-dir': ['files.confDir', ['/a', '/a'], ['/b', '/b'], ['/c', '/c']],
  socket: ['files.socket', ['/a', '/a'], ['/b', '/b'], ['/c', '/c']],
  'cni-bin-dir': ['files.binDir', ['/a', '/a'], ['/b', '/b'], ['/c', '/c']],
  'status-address': [
    'status',
    ['10.0.0.1:80', { host: '10.0.0.1', port: 80, probesOnly: true }],
    ['[::1]:81', { host: '::1', port: 81 }],
    ['off', undefined],
  ],
  'tx-checksum-offload': ['network.txChecksumOffload', ['on', 'on'], ['off', 'off'], ['auto', 'auto']],
  resync: ['network.resyncMs', ['1', 1000], ['0', 0], ['86400', 86_400_000]],
  'probe-interval': ['network.probeMs', ['0', 0], ['1', 1000], ['3600', 3_600_000]],
  'network-policy': [
    'policy',
    ['kubernetes', { from: 'api' }],
    ['/etc/plumb/manifests', { from: 'folder', dir: '/etc/plumb/manifests' }],
    ['/srv/m', { from: 'folder', dir: '/srv/m' }],
  ],
  'policy-socket': ['files.policySocket', ['/a', '/a'], ['/b', '/b'], ['/c', '/c']],
  'service-proxy': [
    'services.objects',
    ['kubernetes', { from: 'api' }],
    ['/etc/plumb/manifests', { from: 'folder', dir: '/etc/plumb/manifests' }],
    ['/srv/m', { from: 'folder', dir: '/srv/m' }],
  ],
  'node-port-addresses': [
    'services.nodePortAddresses',
    ['10.0.0.0/8', ['10.0.0.0/8']],
    ['10.1.2.3/16,fd00::1/8', ['10.1.0.0/16', 'fd00::/8']],
    ['primary', 'primary'],
  ],
  'service-cidr': [
    'services.serviceCidrs',
    ['10.96.0.0/12', ['10.96.0.0/12']],
    ['10.96.0.1/16,fd00:96::/112', ['10.96.0.0/16', 'fd00:96::/112']],
    ['10.97.0.0/16', ['10.97.0.0/16']],
  ],
  'conntrack-max-per-core': ['services.conntrack.maxPerCore', ['0', 0], ['1', 1], ['65536', 65_536]],
  'conntrack-min': ['services.conntrack.min', ['0', 0], ['1', 1], ['262144', 262_144]],
  'conntrack-tcp-timeout-established': [
    'services.conntrack.tcpEstablished',
    ['24h', 86_400],
    ['1h30m5s', 5405],
    ['0', 0],
  ],
  'conntrack-tcp-timeout-close-wait': ['services.conntrack.tcpCloseWait', ['1m', 60], ['90s', 90], ['0s', 0]],
  'conntrack-udp-timeout': ['services.conntrack.udp', ['30s', 30], ['1m', 60], ['0h0m1s', 1]],
  'conntrack-udp-timeout-stream': ['services.conntrack.udpStream', ['30s', 30], ['1m', 60], ['1h', 3600]],
  'conntrack-tcp-be-liberal': ['services.conntrack.isTcpLiberal', ['true', true], ['false', false], ['1', true]],
  'cluster-cidr': [
    'services.clusterCidrs',
    ['10.0.0.0/8', ['10.0.0.0/8']],
    ['10.1.2.3/16,fd00::1/8', ['10.1.0.0/16', 'fd00::/8']],
    ['10.2.0.0/16', ['10.2.0.0/16']],
  ],
  'masquerade-all': ['services.masqueradeAll', ['true', true], ['false', false], ['1', true]],
  'replace-kube-proxy': ['services.replacesKubeProxy', ['true', true], ['false', false], ['1', true]],
  'service-health-address': [
    'services.health',
    ['10.0.0.1:80', { host: '10.0.0.1', port: 80 }],
    ['[fd00::1]:81', { host: 'fd00::1', port: 81 }],
    ['off', undefined],
  ],
  'service-proxy-force': ['services.isForced', ['true', true], ['false', false], ['1', true]],
  'policy-log': ['enforcement.isLogged', ['on', true], ['off', false], ['on', true]],
  'log-format': ['logFormat', ['text', 'text'], ['json', 'json'], ['plain', 'plain']],
  'policy-audit': ['enforcement.isAudit', ['true', true], ['false', false], ['1', true]],
  'fast-path': ['network.fastPath', ['off', 'off'], ['auto', 'auto'], ['off', 'off']],
  'policy-keep-established': ['enforcement.keepsEstablished', ['true', true], ['false', false], ['1', true]],
  'bgp-config': ['bgp.file', ['/a', '/a'], ['/b', '/b'], ['/c', '/c']],
  'otlp-endpoint': [
    'spans.endpoint',
    ['http://127.0.0.1:4318', 'http://127.0.0.1:4318'],
    ['https://otel.example/base', 'https://otel.example/base'],
    ['http://[::1]:4318/', 'http://[::1]:4318/'],
  ],
  'metrics-per-peer': ['metricsPerPeer', ['true', true], ['false', false], ['1', true]],
  'quiet-ms': ['network.quietMs', ['0', 0], ['1', 1], ['60000', 60_000]],
  'allow-extension': ['network.allowExtension', ['true', true], ['false', false], ['t', true]],
  'allow-overlap': ['network.allowOverlap', ['true', true], ['false', false], ['t', true]],
}
/** Those that EACH does not hold, and why. */
const ELSEWHERE: readonly string[] = [
  'config',
  'version',
  'check-config',
  'kube-subnet-mgr',
  'etcd-keyfile',
  'etcd-certfile',
  'etcd-password',
  'subnet-lease-renew-margin',
  'healthz-ip',
  'status-token-file',
  'status-redact',
]

describe('settings', () => {
  it('readSettings() of nothing gives flanneld’s defaults where it has them, and the host’s name', () => {
    assert.deepEqual(read([]), DEFAULTS)
    assert.deepEqual(
      Object.fromEntries(Object.keys(FLANNELD).map((name) => [name, FLAGS[name as FlagName]?.fallback])),
      FLANNELD,
    )
    assert.deepEqual(read(['--store=etcd']).store as unknown, ETCD)
  })

  it('every setting is in the table of the next test, has no effect, or is looked at by itself', () => {
    const idle = Object.entries(FLAGS).flatMap(([name, flag]) => ('idle' in flag ? [name] : []))
    assert.deepEqual([...Object.keys(EACH), ...ELSEWHERE, ...idle].sort(), Object.keys(FLAGS).sort())
  })

  for (const [name, [path, ...values]] of Object.entries(EACH)) {
    it(`--${name} counts before ${variable(name)}, that before the file, that before the default`, () => {
      // Of the stores, the one that the setting is for.
      const kind = /dir|netConf/.test(path) ? 'file' : /kube|server|annotation|Condition/.test(path) ? 'kube' : 'etcd'
      const store =
        path.startsWith('store.') && name !== 'store'
          ? [`--store=${kind}`]
          : path.startsWith('services.') && name !== 'service-proxy'
            ? ['--service-proxy=/srv/m']
            : []
      const [[flag, one], [env, two], [file, three]] = values as [
        readonly [string, unknown],
        readonly [string, unknown],
        readonly [string, unknown],
      ]
      const inFile = `${name}: ${JSON.stringify(file)}\n`
      for (const dash of ['-', '--'])
        assert.deepEqual(at(read([...store, `${dash}${name}=${flag}`], { [variable(name)]: env }, inFile), path), one)
      assert.deepEqual(at(read(store, { [variable(name)]: env }, inFile), path), two)
      assert.deepEqual(at(read(store, {}, inFile), path), three)
      assert.deepEqual(at(read(store, { [variable(name)]: '' }, `${name}:\n`), path), at(read(store), path))
      if (FLAGS[name as FlagName].kind !== 'flag') assert.deepEqual(at(read([...store, `-${name}`, flag]), path), one)
      else assert.deepEqual(at(read([...store, `-${name}`]), path), at(read([...store, `-${name}=true`]), path))
    })
  }

  it('policy and Services have one source of objects, and settings of Services need it', () => {
    assert.throws(
      () => read(['--network-policy=kubernetes', '--service-proxy=/srv/m']),
      /Cannot read --service-proxy "\/srv\/m": want the source of network-policy, "kubernetes"/,
    )
    assert.equal(read(['--network-policy=/srv/m', '--service-proxy=/srv/m']).services?.objects.from, 'folder')
    assert.deepEqual(read(['--masquerade-all']).notes, ['masquerade-all has no effect without service-proxy'])
  })

  it('what may be repeated is gathered, of the rest the last one counts; a list in the file is one, too', () => {
    assert.deepEqual(read(['-iface', 'eth0', '--iface=eth1', '-iface-regex', 'a', '-iface-regex', 'b']).uplink, {
      ...DEFAULTS.uplink,
      interfaces: ['eth0', 'eth1'],
      patterns: [/a/, /b/],
    })
    assert.deepEqual(
      (read(['--etcd-endpoints', 'http://a:1', '--etcd-endpoints=http://b:2']).store as { endpoints?: unknown })
        .endpoints,
      ['http://a:1', 'http://b:2'],
    )
    assert.equal(read(['--quiet-ms=1', '--quiet-ms=2']).network.quietMs, 2)
    assert.deepEqual(
      read([], {}, 'iface: [eth0, 10.0.0.1]\nnon-masquerade-cidrs:\n  - 10.0.0.0/8\n  - fd00::/8\n').uplink.interfaces,
      ['eth0', '10.0.0.1'],
    )
  })

  it('the node’s name is NODE_NAME unless it is said otherwise', () => {
    assert.equal(read([], { NODE_NAME: 'n1' }, 'node-name: n2\n').node, 'n1')
    assert.equal(read([], { NODE_NAME: 'n1', FLANNELD_NODE_NAME: 'n3' }).node, 'n3')
    assert.equal(read(['--node-name=n4'], { NODE_NAME: 'n1' }).node, 'n4')
  })

  it('the store is etcd as soon as anything of etcd is said, else file; what belongs to the other is noted', () => {
    assert.equal(read([], { FLANNELD_ETCD_PREFIX: '/x' }).store.kind, 'etcd')
    assert.equal(read([], {}, 'etcd-username: u\n').store.kind, 'etcd')
    assert.deepEqual(read(['--store=file', '--etcd-prefix=/x', '--subnet-lease-renew-margin=5']).notes, [
      '--etcd-prefix has no effect: the store is file',
      '--subnet-lease-renew-margin has no effect: the store is file',
    ])
    assert.deepEqual(read(['--store=etcd', '--file-store-dir=/x']).notes, [
      '--file-store-dir has no effect: the store is etcd',
    ])
  })

  it('--kube-subnet-mgr is --store=kube; a pod that nobody told its node has its own name for the API', () => {
    const kube = {
      kind: 'kube',
      netConf: '/etc/kube-flannel/net-conf.json',
      annotationPrefix: 'flannel.alpha.coreos.com/',
      setCondition: true,
    }
    for (const argv of [['--kube-subnet-mgr'], ['--store=kube'], ['--kube-subnet-mgr', '--store=kube']])
      assert.deepEqual(read(argv).store as unknown, kube)
    const env = { POD_NAME: 'plumb-x', POD_NAMESPACE: 'plumb' }
    assert.deepEqual(read(['--kube-subnet-mgr'], env).store as unknown, {
      ...kube,
      pod: { name: 'plumb-x', namespace: 'plumb' },
    })
    assert.deepEqual(read(['--kube-subnet-mgr'], { ...env, NODE_NAME: 'n1' }).store as unknown, kube)
    assert.deepEqual(read(['--store=kube', '--etcd-prefix=/x', '--file-store-dir=/y']).notes, [
      '--etcd-prefix has no effect: the store is kube',
      '--file-store-dir has no effect: the store is kube',
    ])
  })

  it('etcd: files of TLS, the user, the margin', () => {
    const argv = [
      '--etcd-endpoints=a:1,https://b:2',
      '--etcd-keyfile=/k',
      '--etcd-certfile',
      '/c',
      '--etcd-cafile=/ca',
      '--etcd-username=u',
      '--subnet-lease-renew-margin=1439',
    ]
    assert.deepEqual(read(argv, { FLANNELD_ETCD_PASSWORD: 'p' }).store as unknown, {
      ...ETCD,
      endpoints: ['https://a:1', 'https://b:2'],
      tls: { key: '/k', certificate: '/c', authority: '/ca' },
      user: { name: 'u', password: 'p' },
      renewMarginMs: 86_340_000,
    })
    assert.deepEqual(read(['--etcd-cafile=/ca']).notes, [
      'http://127.0.0.1:4001 is not encrypted: the certificates are for https',
      'http://127.0.0.1:2379 is not encrypted: the certificates are for https',
    ])
  })

  it('the status server listens where status-address says, else where flanneld’s healthz flags do', () => {
    assert.deepEqual(read(['--healthz-port=8081']).status as unknown, { host: '0.0.0.0', port: 8081, probesOnly: true })
    assert.deepEqual(read(['--healthz-port=8081', '--healthz-ip=::1']).status as unknown, { host: '::1', port: 8081 })
    assert.equal(read(['--healthz-port=0']).status, undefined)
    const both = read(['--healthz-port=8081', '--status-address=10.0.0.1:1'])
    assert.deepEqual(
      [both.status as unknown, both.notes],
      [
        { host: '10.0.0.1', port: 1, probesOnly: true },
        ['healthz-port has no effect: status-address says where the status server listens'],
      ],
    )
    assert.deepEqual(read(['--healthz-ip=::1']).notes, ['healthz-ip has no effect without healthz-port'])
    //
    assert.deepEqual(read(['--status-address=10.0.0.1:1', '--status-token-file=/t']).status as unknown, {
      host: '10.0.0.1',
      port: 1,
      probesOnly: true,
      tokenFile: '/t',
    })
    assert.deepEqual(read(['--status-redact']).status as unknown, { host: '127.0.0.1', port: 9469, isRedacted: true })
  })

  it('the pages of the status server and of the file store tell the defaults that the code has', () => {
    const [status, file] = ['status.md', 'stores/file.md'].map((name) =>
      readFileSync(join(import.meta.dir, '../../../docs', name), 'utf8'),
    )
    for (const name of ['status-address', 'healthz-port', 'healthz-ip'] as const)
      assert.match(
        status ?? '',
        new RegExp(`\\\`--${name}\\\`[^.\\n]*\\\`${FLAGS[name].fallback.replaceAll('.', '\\.')}\\\``),
        name,
      )
    assert.ok(file?.includes(`| \`dir\`        | \`${FLAGS['file-store-dir'].fallback}\` `))
  })

  it('version and check-config say what to do instead of running; config names the file', () => {
    assert.deepEqual(
      [read(['--version']).only, read(['-check-config']).only, read([]).only],
      ['version', 'check-config', undefined],
    )
    assert.deepEqual(
      [
        settingsPath(['--ip-masq', '--config', '/a'], {}),
        settingsPath([], { FLANNELD_CONFIG: '/b' }),
        settingsPath([], {}),
      ],
      ['/a', '/b', undefined],
    )
  })

  it('settingRows() tells of every setting', () => {
    assert.deepEqual(
      settingRows().map(([name = '']) => name.trim().split(' ')[0]),
      Object.keys(FLAGS).map((name) => `--${name}`),
    )
  })
})

function read(argv: readonly string[], env: Env = {}, file?: string): Settings {
  if (file !== undefined) parse(file)
  return readSettings(argv, env, file === undefined ? undefined : { path: '/etc/plumb.yaml', text: file }, 'host-a')
}

function at(settings: Settings, path: string): unknown {
  return path
    .split('.')
    .reduce((value: unknown, key) => (value as Record<string, unknown> | undefined)?.[key], settings)
}

function variable(name: string): string {
  return `FLANNELD_${name.toUpperCase().replaceAll('-', '_')}`
}
