// lane: quick
// Tests lib/text/values.ts.
import assert from 'node:assert/strict'
import { batches } from '../../../lib/state/apply.ts'
import type { Link } from '../../../lib/state/kinds/link.ts'
import { shown } from '../../../lib/text/errors.ts'
import { brief, parse } from '../../../lib/text/values.ts'
import fc from '../../support/properties.ts'

/**
 * What must never reach a batch line, an nft script or a file name: each can end one word or command and begin another.
 */
const HOSTILE = [
  '\n',
  '\r',
  '\0',
  '"',
  "'",
  '\\',
  ' ',
  '\t',
  ';',
  '#',
  '\u2028',
  '\u00a0',
  '\u0085',
  '$(id)',
  '`id`',
  '{',
  '}',
  '\u001b[2J',
  '../',
]

const NAME = 'a letter or digit, then letters, digits, "_", "." or "-"'

describe('parse', () => {
  it('ifname takes what the kernel takes: 1 to 15 bytes', () => {
    for (const name of ['eth0', 'a', 'a'.repeat(15), 'br-1_x', 'eth0.100', 'veth@1', 'ü', 'üüüüüüü'])
      assert.equal(parse.ifname(name), name)
    for (const name of ['', '.', '..', 'a'.repeat(16), 'üüüüüüüü', 'a/b', 'a:b', 'a b', 7, null, undefined, {}, []])
      assert.throws(() => parse.ifname(name), {
        name: 'ValueError',
        message: `${shown(name)}: want an interface name of 1 to 15 bytes without "/", ":" or blanks`,
      })
  })
  it('no hostile character gets through a parser of names, at any place', () => {
    for (const bad of HOSTILE) {
      for (const text of [bad, `${bad}a`, `a${bad}`, `a${bad}b`]) {
        for (const one of ['containerId', 'network'] as const)
          assert.throws(() => parse[one](text), { name: 'ValueError', message: `${shown(text)}: want ${NAME}` })
        assert.throws(() => parse.mac(text))
        if (!/[;{}$`]/.test(bad)) assert.throws(() => parse.ifname(text), { name: 'ValueError' }, JSON.stringify(text))
        if (!/[;{}$`/]/.test(bad))
          assert.throws(() => parse.netns(`/run/netns/${text}`), { name: 'ValueError' }, JSON.stringify(text))
      }
    }
  })
  it('a link of any name that is taken stays one command with as many words as any other', () => {
    fc.assert(
      fc.property(fc.oneof(fc.string({ maxLength: 20 }), fc.string({ unit: 'binary', maxLength: 16 })), (text) => {
        let name: ReturnType<typeof parse.ifname>
        try {
          name = parse.ifname(text)
        } catch (cause) {
          return assert.equal((cause as Error).name, 'ValueError')
        }
        const [batch] = batches({ put: [{ kind: 'link', ns: 'host', name, type: 'peer', up: true } as Link], drop: [] })
        const line = batch?.steps[0]?.line.text ?? ''
        // How iproute2 takes a line apart: blanks, quotes, backslash at the end, # as a comment.
        assert.match(line, /^link set dev [^\s"'\\#]+ up$/u)
        assert.ok(Buffer.byteLength(name) <= 15)
      }),
      { numRuns: 5000 },
    )
  })
  it('containerId and network take what the spec names, and nothing else', () => {
    fc.assert(
      fc.property(fc.stringMatching(/^[a-zA-Z0-9][a-zA-Z0-9_.-]{0,80}$/), (text) =>
        assert.deepEqual([parse.containerId(text), parse.network(text)], [text, text]),
      ),
    )
    fc.assert(
      fc.property(fc.string({ unit: 'binary', maxLength: 12 }), (text) => {
        if (!/^[a-zA-Z0-9][a-zA-Z0-9_.-]*$/.test(text) || text.endsWith('\n'))
          assert.throws(() => parse.network(text), { name: 'ValueError' })
      }),
      { numRuns: 2000 },
    )
  })
  it('mac reads the three usual spellings into one, and refuses group addresses and zeros', () => {
    for (const text of ['02:00:0a:f4:00:0b', '02-00-0A-F4-00-0B', '0200.0af4.000b', '02:00:0A:F4:00:0B'])
      assert.equal(parse.mac(text), '02:00:0a:f4:00:0b')
    for (const text of [
      '01:00:5e:00:00:01',
      'ff:ff:ff:ff:ff:ff',
      '00:00:00:00:00:00',
      '02:00:0a:f4:00',
      '02:00:0a:f4:00:0b:0c',
      '02-00:0a:f4:00:0b',
      '2:0:a:f4:0:b',
      '02000af4000b',
      '02:00:0a:f4:00:0g',
      '',
      7,
      null,
    ]) {
      assert.throws(() => parse.mac(text), {
        name: 'ValueError',
        message: `${shown(text)}: want a unicast Ethernet address such as 02:00:0a:f4:00:02`,
      })
    }
  })
  it('port takes 1 to 65535', () => {
    assert.deepEqual([parse.port(1), parse.port(65535)], [1, 65535])
    for (const value of [0, -1, 65536, 1.5, Number.NaN, '80', null])
      assert.throws(() => parse.port(value), { name: 'ValueError' })
  })
  it('netns takes paths, and no text without a slash', () => {
    for (const path of [
      '/run/netns/a',
      '/var/run/docker/netns/0123',
      '/proc/1/ns/net',
      './x',
      '/run/netns/cni-8d3b5c1e-2f',
    ])
      assert.equal(parse.netns(path), path)
    for (const path of ['', 'netns', 'x'.repeat(5000), '/a b', 7])
      assert.throws(() => parse.netns(path), { name: 'ValueError' })
  })
})

describe('brief()', () => {
  it('keeps names of up to 100 characters, and makes longer ones short and still different', () => {
    const long = 'a'.repeat(101)
    assert.equal(brief('a'.repeat(100)), 'a'.repeat(100))
    assert.match(brief(long), /^\+[0-9a-f]{32}$/)
    assert.notEqual(brief(long), brief(`${long}a`))
    assert.throws(() => parse.network(brief(long)), 'no name can be what another is shortened to')
  })
})
