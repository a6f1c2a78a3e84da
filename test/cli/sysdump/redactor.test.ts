// lane: quick
// Tests cli/sysdump/redactor.ts.
import assert from 'node:assert/strict'
import { isSensitive, Redactor } from '../../../cli/sysdump/redactor.ts'
import { patient } from '../../support/patience.ts'
import fc from '../../support/properties.ts'

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
