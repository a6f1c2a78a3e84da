// lane: quick
// Tests agent/settings.
import assert from 'node:assert/strict'
import { FLAGS, type FlagName } from '../../../agent/settings/flags.ts'
import { readSettings, describe as shown } from '../../../agent/settings/read.ts'
import { ValueError } from '../../../lib/text/errors.ts'
import fc from '../../support/properties.ts'

type Env = Readonly<Record<string, string>>

describe('settings that are wrong', () => {
  const IP = 'want an IP address such as 10.1.0.2 or fd00::2'
  const flags: readonly (readonly [readonly string[], string])[] = [
    [['--ip-mask'], 'Cannot read --ip-mask: there is no such flag, did you mean "--ip-masq"?'],
    [['-etcd-endpoint=x'], 'Cannot read --etcd-endpoint: there is no such flag, did you mean "--etcd-endpoints"?'],
    [['--etcd-pasword=secret'], 'Cannot read --etcd-pasword: there is no such flag, did you mean "--etcd-password"?'],
    [['--nothing-like-it'], 'Cannot read --nothing-like-it: there is no such flag'],
    [['start'], 'Cannot read "start": want a flag, which begins with a dash'],
    [
      ['--ip-masq', 'false'],
      'Cannot read "false": want a flag, which begins with a dash; one that is true or false takes its value after =',
    ],
    [['--'], 'Cannot read "--": want a flag, which begins with a dash'],
    [['---iface=x'], 'Cannot read "---iface=x": want a flag, which begins with a dash'],
    [['--iface'], 'Cannot read --iface: want a value after it'],
    [['--ip-masq=yes'], 'Cannot read --ip-masq "yes": want true or false'],
    [
      ['--kube-subnet-mgr', '--store=etcd'],
      'Cannot read --kube-subnet-mgr true: want --store=kube with it, not --store=etcd',
    ],
    [
      ['--store=kube', '--kube-api-url=10.0.0.1:6443'],
      'Cannot read --kube-api-url "10.0.0.1:6443": want a URL such as https://10.0.0.1:6443',
    ],
    [
      ['--store=kube', '--kube-api-url=https://me:secret@10.0.0.1'],
      'Cannot read --kube-api-url "https://…@10.0.0.1": want the user in a kubeconfig',
    ],
    [
      ['--store=kube', '--kube-annotation-prefix=a/b/c'],
      'Cannot read --kube-annotation-prefix "a/b/c": want a prefix such as flannel.alpha.coreos.com or example.org/flannel',
    ],
    [['--healthz-port=65536'], 'Cannot read --healthz-port "65536": want a whole number, 0 to 65535'],
    [['--healthz-ip=localhost', '--healthz-port=1'], `Cannot read --healthz-ip "localhost": ${IP}`],
    [
      ['--subnet-lease-renew-margin=1440'],
      'Cannot read --subnet-lease-renew-margin "1440": want a whole number, 1 to 1439',
    ],
    [['--subnet-lease-renew-margin=0'], 'Cannot read --subnet-lease-renew-margin "0": want a whole number, 1 to 1439'],
    [['--resync=1.5'], 'Cannot read --resync "1.5": want a whole number, 0 to 86400'],
    [['--quiet-ms=010'], 'Cannot read --quiet-ms "010": want a whole number, 0 to 60000'],
    [['--public-ip=fd00::1'], 'Cannot read --public-ip "fd00::1": want an IPv4 address'],
    [['--public-ipv6=10.0.0.1'], 'Cannot read --public-ipv6 "10.0.0.1": want an IPv6 address'],
    [
      ['--tunnel-address=10.0.0.1,10.0.0.2'],
      'Cannot read --tunnel-address "10.0.0.1,10.0.0.2": want one address per family',
    ],
    [['--advertise-address=10.0.0.300'], `Cannot read --advertise-address "10.0.0.300": ${IP}`],
    [
      ['--non-masquerade-cidrs=10.0.0.0/8,10/8'],
      'Cannot read --non-masquerade-cidrs "10/8": want an address with a prefix length such as 10.1.0.0/24 or fd00::/64',
    ],
    [
      ['--tunnel-sources=leases,all'],
      'Cannot read --tunnel-sources "all": want leases, any, or a network such as 192.0.2.0/24',
    ],
    [['--tunnel-sources='], 'Cannot read --tunnel-sources "": want leases, any, or a network such as 192.0.2.0/24'],
    [
      ['--service-proxy=/srv/m', '--node-port-addresses=primary,10.0.0.0/8'],
      'Cannot read --node-port-addresses "primary,10.0.0.0/8": want primary alone, or networks',
    ],
    ...['1d', '1.5h', '5', '-1s', '2000001s'].map((text): [readonly string[], string] => [
      ['--service-proxy=/srv/m', `--conntrack-udp-timeout=${text}`],
      `Cannot read --conntrack-udp-timeout "${text}": want a time such as 24h, 1h30m or 0s, 2000000 s at most`,
    ]),
    [['--store=consul'], 'Cannot read --store "consul": want one of file, etcd, kube'],
    [['--tx-checksum-offload=no'], 'Cannot read --tx-checksum-offload "no": want one of auto, on, off'],
    [
      ['--status-address=:80'],
      'Cannot read --status-address ":80": want off, or an address and a port such as 127.0.0.1:9469 or [::1]:9469',
    ],
    [
      ['--status-address=127.0.0.1:0'],
      'Cannot read --status-address "127.0.0.1:0": want off, or an address and a port such as 127.0.0.1:9469 or [::1]:9469',
    ],
    [
      ['--iface-regex=(a'],
      'Cannot read --iface-regex "(a": want a regular expression: Invalid regular expression: missing )',
    ],
    [['--subnet-file='], 'Cannot read --subnet-file "": want a path'],
    [
      ['--node-name=-x'],
      `Cannot read --node-name "-x": want a node's name: a letter or digit, then letters, digits, ".", "_" or "-"`,
    ],
    [['--etcd-endpoints='], 'Cannot read --etcd-endpoints "": want at least one URL'],
    [['--etcd-endpoints=ftp://a'], 'Cannot read --etcd-endpoints "ftp://a": want a URL such as https://10.0.0.1:2379'],
    [
      ['--etcd-endpoints=http://a:1/v3'],
      'Cannot read --etcd-endpoints "http://a:1/v3": want a URL such as https://10.0.0.1:2379',
    ],
    [
      ['--etcd-endpoints=http://u:secret@a:1'],
      'Cannot read --etcd-endpoints "http://…@a:1": want the user in etcd-username and etcd-password',
    ],
    [['--etcd-prefix=/'], 'Cannot read --etcd-prefix "/": want a key such as /coreos.com/network'],
    [['--etcd-keyfile=/k'], 'Cannot read --etcd-keyfile "/k": want etcd-keyfile and etcd-certfile, or neither'],
    [['--etcd-certfile=/c'], 'Cannot read --etcd-certfile "/c": want etcd-keyfile and etcd-certfile, or neither'],
    [['--etcd-password=secret'], 'Cannot read --etcd-password alone: want etcd-username with it'],
  ]
  for (const [argv, message] of flags)
    it(`readSettings() refuses ${argv.join(' ')}`, () => refuses(argv, {}, undefined, message))

  const files: readonly (readonly [string, string])[] = [
    ['store: etcd\nip-masq: maybe\n', 'Cannot read /etc/plumb.yaml:2:10: ip-masq "maybe": want true or false'],
    [
      'etcdEndpoints: x\n',
      'Cannot read /etc/plumb.yaml:1:1: there is no setting "etcdEndpoints" for a file, did you mean "etcd-endpoints"?',
    ],
    [
      'ip-masq: true\n\n  # a comment\nifaces: eth0\n',
      'Cannot read /etc/plumb.yaml:4:1: there is no setting "ifaces" for a file, did you mean "iface"?',
    ],
    ['config: /a\n', 'Cannot read /etc/plumb.yaml:1:1: there is no setting "config" for a file'],
    ['- ip-masq\n', 'Cannot read /etc/plumb.yaml: want names and values, such as "store: etcd"'],
    ['ip-masq', 'Cannot read /etc/plumb.yaml: want names and values, such as "store: etcd"'],
    ['store: [etcd]\n', 'Cannot read /etc/plumb.yaml:1:8: store: want one value'],
    ['iface: {name: eth0}\n', 'Cannot read /etc/plumb.yaml:1:8: iface: want a value or a list of values'],
    ['iface:\n  - [eth0]\n', 'Cannot read /etc/plumb.yaml:2:3: iface: want a value or a list of values'],
    [
      'healthz-port: 08081\n',
      'Cannot read /etc/plumb.yaml:1:15: healthz-port "08081": want a whole number, 0 to 65535',
    ],
    ['resync: 1\nresync: 2\n', 'Cannot read /etc/plumb.yaml:2:1: Map keys must be unique'],
    ['iface: "eth0\n', 'Cannot read /etc/plumb.yaml:2:1: Missing closing "quote'],
    [
      'etcd-username: u\netcd-password: {secret: 1}\n',
      'Cannot read /etc/plumb.yaml:2:16: etcd-password: want one value',
    ],
    ['a: &x 1\nstore: *x\n', 'Cannot read /etc/plumb.yaml:1:1: there is no setting "a" for a file'],
    [
      'store: file\n---\nstore: etcd\n',
      'Cannot read /etc/plumb.yaml:2:1: Source contains multiple documents; please use YAML.parseAllDocuments()',
    ],
  ]
  for (const [text, message] of files)
    it(`readSettings() refuses ${JSON.stringify(text)}, with its place`, () => refuses([], {}, text, message))

  it('readSettings() takes an empty file and one of comments', () => {
    for (const text of ['', '\n', '# nothing\n', '---\n', 'null\n']) assert.deepEqual(read([], {}, text).said, [])
  })

  it('what is wrong in the environment is named by its variable; the name of the host has to do, too', () => {
    refuses([], { FLANNELD_IP_MASQ: 'ja' }, undefined, 'Cannot read FLANNELD_IP_MASQ "ja": want true or false')
    refuses(
      [],
      { NODE_NAME: 'a/b' },
      undefined,
      `Cannot read NODE_NAME "a/b": want a node's name: a letter or digit, then letters, digits, ".", "_" or "-"`,
    )
    assert.throws(
      () => readSettings([], {}, undefined, 'a b'),
      new ValueError(`"a b": want a node's name: a letter or digit, then letters, digits, ".", "_" or "-"`),
    )
  })

  it('flanneld’s flags without an effect are taken, and the user is told why; so for variables that no setting has', () => {
    const { notes } = read(
      ['--kube-subnet-mgr=false', '-v=5', '--iptables-resync', '10', '--kubeconfig-file=/k', '--vmodule=x=1'],
      {
        FLANNELD_KUBE_API_URL: 'https://a',
        FLANNELD_ETCD_ENPOINTS: 'x',
        FLANNELD_SERVICE_HOST: '10.0.0.1',
        FLANNELD_PORT_80_TCP: 'x',
        OTHER: 'x',
      },
    )
    assert.deepEqual(notes, [
      'FLANNELD_KUBE_API_URL has no effect: the store is file',
      '-v has no effect: there is one level of log'.replace('-v', '--v'),
      '--iptables-resync has no effect: the rules are nftables, which are watched as they change',
      '--kubeconfig-file has no effect: the store is file',
      '--vmodule has no effect: there is one level of log',
      'FLANNELD_ETCD_ENPOINTS has no effect: there is no such setting, did you mean "FLANNELD_ETCD_ENDPOINTS"?',
    ])
  })

  it('a password on the command line is warned of', () => {
    assert.deepEqual(read(['--etcd-username=u', '--etcd-password=p']).notes, [
      '--etcd-password shows the password to everybody who runs ps: want FLANNELD_ETCD_PASSWORD or the file',
    ])
    assert.deepEqual(read(['--etcd-username=u'], { FLANNELD_ETCD_PASSWORD: 'p' }).notes, [])
  })

  it('describe() tells what was said, and whose lease it is, on one line, without a secret, from any source', () => {
    assert.equal(
      shown(
        read(
          ['--iface=a', '--iface=b'],
          { FLANNELD_ETCD_PASSWORD: 'swordfish', NODE_NAME: 'n1' },
          'etcd-username: u\n',
        ),
      ),
      'node=n1 store=etcd etcd-username=u etcd-password=(secret) iface=a,b',
    )
    for (const told of [
      read(['--etcd-username=u', '--etcd-password=swordfish']),
      read([], {}, 'etcd-username: u\netcd-password: swordfish\n'),
    ])
      assert.doesNotMatch(`${shown(told)} ${told.notes} ${told.said}`, /swordfish/)
    assert.deepEqual(
      Object.entries(FLAGS).flatMap(([name, flag]) => ('secret' in flag ? [name] : [])),
      ['etcd-password'],
    )
  })

  it('readSettings() answers any command line, environment and file with settings or one sentence that shows no password', () => {
    const name = fc.constantFrom(...(Object.keys(FLAGS) as FlagName[]))
    const value = fc.oneof(
      fc.string(),
      fc.constantFrom('true', '0', '10.0.0.1', 'fd00::/8', 'http://a:1', '*', '[', '&a', '{}', '!!map', '\u0000'),
    )
    fc.assert(
      fc.property(
        fc.array(fc.tuple(name, value), { maxLength: 4 }),
        fc.array(fc.tuple(name, value), { maxLength: 4 }),
        fc.option(fc.string()),
        (argv, keys, tail) => {
          const file = `${keys.map(([key, one]) => `${key}: ${one}`).join('\n')}\n${tail ?? ''}`
          const words = [
            ...argv.map(([key, one]) => `--${key}=${one}`),
            '--etcd-username=u',
            '--etcd-password=swordfish',
          ]
          try {
            assert.doesNotMatch(shown(read(words, {}, file)), /swordfish|\n/)
          } catch (cause) {
            assert.ok(cause instanceof ValueError, String(cause))
            assert.doesNotMatch(cause.message, /swordfish/)
          }
        },
      ),
      { numRuns: 2000 },
    )
  })
})

function read(argv: readonly string[], env: Env = {}, text?: string): ReturnType<typeof readSettings> {
  return readSettings(argv, env, text === undefined ? undefined : { path: '/etc/plumb.yaml', text }, 'host-a')
}

function refuses(argv: readonly string[], env: Env, text: string | undefined, message: string): void {
  assert.throws(
    () => read(argv, env, text),
    (cause) => {
      assert.ok(cause instanceof ValueError, String(cause))
      assert.equal(cause.message, message)
      return true
    },
  )
}
