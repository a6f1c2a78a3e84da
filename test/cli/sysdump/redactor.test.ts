// lane: quick
// Tests cli/sysdump: what is removed, what gets a stand-in, and the archive.
import assert from 'node:assert/strict'
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { execa } from 'execa'
import { Archive } from '../../../cli/sysdump/archive.ts'
import { podLogs } from '../../../cli/sysdump/pod-logs.ts'
import { isSensitive, Redactor } from '../../../cli/sysdump/redactor.ts'
import { StandIns } from '../../../cli/sysdump/stand-ins.ts'
import { bitsOf, type Ip } from '../../../lib/text/ip.ts'
import { patient } from '../../support/patience.ts'
import fc from '../../support/properties.ts'

/** First bytes of addresses that stay, or whose stand-ins may be such addresses. */
const SPECIAL = /^(0|127|22[4-9]|23\d|255|169)\./
const X = 'Hunter2-Swordfish'
const B64 = Buffer.from(X).toString('base64')
const KEY = Buffer.alloc(32, 7).toString('base64')
const PEM = `-----BEGIN EC PRIVATE KEY-----\n${Buffer.alloc(90, 9).toString('base64')}\n-----END EC PRIVATE KEY-----`

/** Texts with the secret, by what they are like. */
const TEXTS: Readonly<Record<string, string>> = {
  flag: `flanneld --etcd-password=${X} --v=1`,
  'flag with a space': `flanneld --etcd-password ${X} --v=1`,
  'words of /proc': `flanneld\0--etcd-password\0${X}\0--v=1\0`,
  'user of curl': `curl -u admin:${X} https://x`,
  variable: `FLANNELD_ETCD_PASSWORD=${X}\nPATH=/bin`,
  'variables of /proc': `A=1\0MY_TOKEN=${X}\0B=2`,
  'Environment= of a unit': `Environment="DB_PASSWORD=${X}"`,
  yaml: `etcd:\n  password: ${X} and more words of ${X}\n  x: 1`,
  'quoted yaml': `password: "${X}, with: signs"`,
  'block of yaml': `token: |\n  ${X}\n  ${X}\nother: 1`,
  'list of yaml': `tokens:\n- ${X}\n- ${X}\nother: 1`,
  ini: `[wg]\nPresharedKey = ${X}\nPrivateKey = ${KEY}`,
  'WireGuard key alone': `key ${KEY} was read`,
  bird: `password "${X}";`,
  sentence: `logging in with password ${X}.`,
  header: `Authorization: Bearer ${X}`,
  'header of curl': `curl -H 'Authorization: Basic ${B64}' https://x`,
  cookie: `Cookie: a=1; session=${X}`,
  'header of another name': `X-Auth-Token: ${X}`,
  url: `GET https://admin:${X}@etcd:2379/v2`,
  'url with an at': `https://admin:${X}@${X}@etcd:2379/v2`,
  query: `GET /x?access_token=${X}&y=1`,
  'JSON in a line': `msg {"password":"${X}","b":1}`,
  'JSON in JSON': `{"msg":"{\\"password\\":\\"${X}\\"}"}`,
  'JSON in JSON in JSON': JSON.stringify(JSON.stringify(JSON.stringify({ token: X }))),
  'quote in it': `{"password":"a\\"${X}"}`,
  'cut JSON': `{"password":"${X}`,
  pem: `x\n${PEM.replace('EC', 'RSA')}\ny${X.slice(0, 0)}`,
  'base64 of a line': Buffer.from(`password: ${X}`).toString('base64'),
  'base64 of base64': Buffer.from(Buffer.from(`password: ${X}`).toString('base64')).toString('base64'),
  'base64 in lines': Buffer.from(`${'words '.repeat(30)}\npassword: ${X}\n`)
    .toString('base64')
    .replace(/.{76}/g, '$&\n'),
  'base64 under its name': `client-key-data: ${B64}`,
  JWT: `got eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.${X}`,
  colour: `\u001b[31mpassword=${X}\u001b[0m`,
}

/** Everything that base64 of the secret can look like, where it stands in a longer text. */
function traces(secret: string): string[] {
  return [0, 1, 2].flatMap((offset) => {
    const bytes = Buffer.concat([Buffer.alloc(offset, 32), Buffer.from(secret), Buffer.alloc(3, 32)])
    const form = bytes.toString('base64').slice(4, Math.floor(((secret.length + offset) * 4) / 3) - 2)
    return [form, form.replaceAll('+', '-').replaceAll('/', '_')]
  })
}

function redacted(text: string): string {
  const redactor = new Redactor()
  return redactor.known(redactor.text(text))
}

describe('Redactor', () => {
  for (const [what, text] of Object.entries(TEXTS))
    it(`removes a secret: ${what}`, () => {
      const left = redacted(text)
      for (const secret of [X, KEY, Buffer.alloc(90, 9).toString('base64'), ...traces(X)])
        assert.ok(!left.includes(secret), left)
      assert.match(left, /\(removed\)/)
    })

  it('leaves what is no secret', () => {
    for (const text of [
      'token expired, basic authentication is off, passed: 5 of 7 with passage',
      'PublicKey: 8Hgn9v5lTjZx2n3Yp0q1RrStUvWxYz0123456789abc=',
      '{"dst":"10.244.1.0/24","gateway":"10.244.1.0","dev":"flannel.1"}',
      'tcp 6 431999 ESTABLISHED src=10.0.0.1 dst=10.0.0.2 sport=43210 dport=443 [ASSURED] mark=0',
      'add rule inet plumb chain comment "policy shop/web" # handle 12',
      'net.ipv4.conf.all.rp_filter = 0',
      '0f3c9d7a5be14e1e8d6b0f3c9d7a5be14e1e8d6b0f3c9d7a5be14e1e8d6b1234 eth0 /var/lib/cni/networks/cbr0/10.244.1.2',
      '    secretName: web-tls',
    ])
      assert.equal(redacted(text), text)
  })

  it('removes a secret that it has met also where nothing says that it is one, and base64 of it', () => {
    const redactor = new Redactor()
    const texts = [`token=${X}`, `the word is ${X}`, `${B64} ${Buffer.from(`to ${X} or`).toString('base64')}`]
    const left = texts.map((text) => redactor.text(text)).map((text) => redactor.known(text))
    assert.deepEqual(left, ['token=(removed)', 'the word is (removed)', '(removed) (removed)'])
  })

  it('takes the values of environments, annotations of others and managedFields out of objects, and keeps the form', () => {
    const pod = {
      metadata: {
        name: 'a',
        managedFields: [{ x: X }],
        annotations: {
          'flannel.alpha.coreos.com/public-ip': '10.0.0.1',
          'kubectl.kubernetes.io/last': X,
          'plumb.dev/x': '1',
        },
      },
      spec: {
        containers: [
          {
            env: [
              { name: 'A', value: X },
              { name: 'B', valueFrom: { fieldRef: { fieldPath: 'x' } } },
            ],
            args: ['--token', X],
          },
        ],
      },
    }
    assert.deepEqual(new Redactor().json(pod), {
      metadata: {
        name: 'a',
        annotations: { 'flannel.alpha.coreos.com/public-ip': '10.0.0.1', 'plumb.dev/x': '1' },
      },
      spec: {
        containers: [
          {
            env: [
              { name: 'A', value: '(removed)' },
              { name: 'B', valueFrom: { fieldRef: { fieldPath: 'x' } } },
            ],
            args: ['--token', '(removed)'],
          },
        ],
      },
    })
  })

  it('removes the secret within any text around it', () => {
    const around = fc.string({ unit: 'binary', maxLength: 200 }).map((text) => text.replaceAll(X, ''))
    fc.assert(
      fc.property(around, fc.constantFrom(...Object.values(TEXTS)), around, (before, text, after) => {
        const left = redacted(`${before}\n${text}\n${after}`)
        assert.ok(!left.includes(X), JSON.stringify([before, text, after, left]))
      }),
      { numRuns: 1000 },
    )
  })

  it('takes any JSON, leaves valid JSON, and no value below the name of a secret', () => {
    fc.assert(
      fc.property(fc.json({ maxDepth: 4 }), fc.constantFrom('password', 'a-token', 'client-key-data'), (text, name) => {
        const value = { inner: JSON.parse(text), [name]: { deep: [X, JSON.parse(text)] }, list: [`--${name}`, X] }
        const left = JSON.stringify(new Redactor().json(value))
        assert.ok(!left.includes(X), left)
        assert.doesNotThrow(() => JSON.parse(left))
      }),
      { numRuns: 1000 },
    )
  })

  it('takes time in proportion to the length of the most hostile texts', () => {
    for (const part of [
      '://a:',
      'password=',
      'a:"',
      '\\\\\\"',
      '-----BEGIN PRIVATE KEY-----',
      'password ',
      '"',
      'eyJaaaaaaaa.',
      'A',
      'AAAA ',
      '--token ',
      `${'A'.repeat(76)}\n`,
      'x=',
      '$6$',
      '\n',
      'token: |\n',
      '@',
      'a://',
      'key',
      ' ',
      'Basic ',
      'a-',
      '.',
    ]) {
      const began = performance.now()
      redacted(part.repeat(Math.ceil(300_000 / part.length)))
      const took = performance.now() - began
      assert.ok(took < patient(10_000), `${JSON.stringify(part)}: ${took} ms`)
    }
  })
})

describe('isSensitive()', () => {
  it('knows a secret by the name of its key', () => {
    for (const name of [
      'password',
      '--etcd-password',
      'DB_PASS',
      'clientKeyData',
      'client-certificate-data',
      'authToken',
      'psk',
      'MD5',
      'Authorization',
    ])
      assert.ok(isSensitive(name), name)
    for (const name of [
      'passed',
      'author',
      'secretName',
      'passwordFile',
      'key',
      'publicKey',
      'tokens_count',
      'mode',
      'username',
    ])
      assert.ok(!isSensitive(name), name)
  })
})

describe('StandIns', () => {
  const v4 = fc.tuple(fc.nat(255), fc.nat(255), fc.nat(255), fc.nat(255)).map((parts) => parts.join('.'))

  it('gives an address one stand-in, other than any other’s, and keeps common prefixes of it', () => {
    fc.assert(
      fc.property(v4, v4, (one, other) => {
        const standIns = new StandIns()
        const [first = '', second = '', third] =
          standIns.text(`${one} x [${other}]:80 ${one}`).match(/\d+(\.\d+){3}/g) ?? []
        assert.equal(first, third)
        assert.equal(first === second, one === other)
        if (!SPECIAL.test(one)) assert.notEqual(first, one)
        if (!SPECIAL.test(one) && !SPECIAL.test(other)) assert.equal(shared(first, second), shared(one, other))
      }),
      { numRuns: 500 },
    )
  })
  it('keeps routes readable: the address of a network is one, and its addresses lie in it', () => {
    const text = new StandIns().text(
      '10.244.0.0/16 10.244.7.0/24 via 10.244.7.1 fd00:10:244::/48 fd00:10:244:7::/64 fd00:10:244:7::1 10.96.0.0/12',
    )
    const [wide = '', net = '', gateway = '', wide6 = '', net6 = '', gateway6 = ''] = text
      .replace('via ', '')
      .split(' ')
    assert.match(wide, /^10\.\d+\.0\.0\/16$/)
    assert.match(net, /^10\.\d+\.\d+\.0\/24$/)
    assert.equal(gateway, net.replace('.0/24', '.1'))
    assert.ok(net.startsWith(wide.replace('.0.0/16', '.')), text)
    assert.ok(gateway6.startsWith(net6.replace('::/64', ':')), text)
    assert.ok(net6.startsWith(wide6.replace('::/48', ':')), text)
    assert.ok(!/244/.test(text), text)
  })
  it('keeps addresses that mean the same everywhere, and masks, times and versions', () => {
    const text =
      '0.0.0.0/0 127.0.0.1:80 255.255.255.0 224.0.0.1 169.254.1.1 ::1 ::/0 ff02::1 12:34:56 1.2.3 00:00:00:00:00:00 ff:ff:ff:ff:ff:ff'
    assert.equal(new StandIns().text(text), text)
  })
  it('replaces MAC addresses and names everywhere, the longest first, and a short name only between signs', () => {
    const standIns = new StandIns()
    standIns.name('node', 'worker-1')
    standIns.name('pod', 'shop')
    standIns.name('pod', 'shop-x7')
    standIns.name('namespace', 'x')
    standIns.name('namespace', 'kube-system')
    assert.equal(
      standIns.text(
        'worker-1 a_shop-x7_0 shop x/shop "x" xx kube-system worker-10 02:42:ac:11:00:02 0242.ac11 02:42:AC:11:00:02',
      ),
      'node-1 a_pod-2_0 pod-1 x/pod-1 "namespace-1" xx kube-system worker-10 02:00:00:00:00:01 0242.ac11 02:00:00:00:00:01',
    )
  })
  it('takes any name and any text', () => {
    fc.assert(
      fc.property(fc.array(fc.string({ unit: 'binary' })), fc.string({ unit: 'binary' }), (names, text) => {
        const standIns = new StandIns()
        for (const name of names) standIns.name('pod', name)
        const left = standIns.text(`${text} "${names[0] ?? ''}"`)
        assert.equal(typeof left, 'string')
      }),
    )
  })
})

describe('Archive', () => {
  it('is a tar.gz that tar reads, and refuses a file that does not fit', async () => {
    const archive = new Archive('folder', 2000)
    const noise = Buffer.from(Array.from({ length: 4000 }, (_, i) => (i * 7919 + (i >> 3) * 104_729) % 251)).toString(
      'base64',
    )
    assert.deepEqual(
      [
        archive.add('a/b.txt', 'one\n', 1_700_000_000_000),
        archive.add('noise', noise, 0),
        archive.add('empty', '', 0),
        archive.add('blocks', 'x'.repeat(1024), 0),
      ],
      [true, false, true, true],
    )
    assert.ok(archive.bytes().length <= 2000)
    const tar = (...args: string[]) => execa('tar', args, { input: archive.bytes() })
    const { stdout } = await tar('tzf', '-')
    assert.equal(stdout, 'folder/a/b.txt\nfolder/empty\nfolder/blocks')
    assert.equal((await tar('xzOf', '-', 'folder/a/b.txt')).stdout, 'one')
  })
})

function shared(one: string, other: string): number {
  const different = bitsOf(one as Ip).bits ^ bitsOf(other as Ip).bits
  // The last eight bits stay, so they tell nothing.
  return different === 0n ? 32 : Math.min(24, 32 - different.toString(2).length)
}

describe('podLogs()', () => {
  const dirs: string[] = []
  afterEach(() => {
    for (const dir of dirs.splice(0)) rmSync(dir, { recursive: true })
  })
  const [old, now] = [7200, 0].map((seconds) => new Date(Date.now() - seconds * 1000).toISOString())
  const folderOf = (files: Readonly<Record<string, string>>) => {
    const dir = mkdtempSync('/tmp/pod-logs-')
    dirs.push(dir)
    for (const [path, text] of Object.entries(files)) {
      mkdirSync(join(dir, path, '..'), { recursive: true })
      writeFileSync(join(dir, path), text)
    }
    return dir
  }

  it('has the logs of plumb, DNS and kube-proxy for the time, and of no other pod', async () => {
    const line = (text: string, time = now) => `${time} stdout F ${text}\n`
    const dir = folderOf({
      'net_plumb-7x2lp_1/agent/0.log': `${line('long ago', old)}${line('agent is ready')}`,
      'kube-system_coredns-5d-9_2/coredns/1.log': line('DNS of now'),
      'kube-system_coredns-5d-9_2/coredns/0.log': line('DNS of before'),
      'kube-system_coredns-5d-9_2/coredns/0.log.20261128-093000': line('DNS that was rotated'),
      'kube-system_coredns-5d-9_2/coredns/0.log.20261128-083000.gz': 'compressed',
      'kube-system_kube-proxy-x_3/kube-proxy/0.log': `{"log":"of Docker\\n","time":"${now}"}\n{"log":"old","time":"${old}"}\n`,
      'kube-system_etcd-a_4/etcd/0.log': line('of etcd'),
      'shop_coredns-mine_5/x/0.log': line('of a user'),
      'shop_web-1_6/web/0.log': line('of a user'),
    })
    symlinkSync('/dev/zero', join(dir, 'net_plumb-7x2lp_1/agent/1.log'))
    const text = await podLogs(3600, dir)
    for (const part of ['agent is ready', 'DNS of now', 'DNS of before', 'DNS that was rotated', 'of Docker'])
      assert.ok(text.includes(part), `${part}: ${text}`)
    for (const part of ['long ago', 'old', 'compressed', 'of etcd', 'of a user'])
      assert.ok(!text.includes(part), `${part}: ${text}`)
    assert.match(text, new RegExp(`^==== ${dir}/net_plumb-7x2lp_1/agent/0.log$`, 'm'))
    assert.match(await podLogs(3600, join(dir, 'none')), /has no log of plumb/)
  })
  it('a secret that the runtime cut in two is removed, and a large log has only its end', async () => {
    const secret = 'Hunter2-Swordfish'
    const cut = `${now} stderr P password="${secret.slice(0, 9)}\n${now} stdout F between\n${now} stderr F ${secret.slice(9)}"\n`
    const dir = folderOf({
      'x_plumb-a_1/agent/0.log': cut,
      'x_plumb-b_1/agent/0.log': `${now} stdout F first\n${`${now} stdout F ${'x'.repeat(1000)}\n`.repeat(2000)}${now} stdout F last\n`,
    })
    const text = new Redactor().file(await podLogs(3600, dir))
    assert.ok(!text.includes(secret.slice(0, 9)) && !text.includes(secret.slice(9)), text.slice(0, 300))
    assert.match(text, /stderr F password="?\(removed\)/)
    assert.ok(text.includes('between') && text.includes('stdout F last') && !text.includes('stdout F first'))
    assert.ok(text.length < 600_000)
  })
})
