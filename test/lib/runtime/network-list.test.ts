// lane: quick
// Tests lib/runtime.
import assert from 'node:assert/strict'
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { loadNetwork, parseJson, parseNetwork } from '../../../lib/runtime/network-list.ts'
import fc from '../../support/properties.ts'

const bridge = { type: 'bridge', bridge: 'br0' }

describe('loadNetwork()', () => {
  let dir: string
  beforeEach(() => {
    dir = mkdtempSync(join(tmpdir(), 'netconf-'))
  })
  afterEach(() => rmSync(dir, { recursive: true }))

  it('finds a list by name among several, and ignores folders', () => {
    put('10-a.conflist', { cniVersion: '1.0.0', name: 'a', plugins: [bridge] })
    put('20-b.conflist', { cniVersion: '1.1.0', name: 'b', plugins: [bridge, { type: 'portmap' }] })
    put('deeper/30-c.conflist', { name: 'c', plugins: [bridge] })
    mkdirSync(join(dir, '00.conflist'))
    const { name, cniVersion, plugins } = loadNetwork(dir, 'b')
    assert.deepEqual([name, cniVersion, plugins.map(({ type }) => type)], ['b', '1.1.0', ['bridge', 'portmap']])
    assert.throws(() => loadNetwork(dir, 'c'), {
      name: 'ValueError',
      message: `Cannot find network "c": ${dir} has a, b`,
    })
  })
  it('takes a conflist before a conf of the same name', () => {
    put('10-a.conf', { name: 'a', type: 'loopback' })
    put('20-a.conflist', { name: 'a', plugins: [bridge] })
    assert.equal(loadNetwork(dir, 'a').plugins[0]?.type, 'bridge')
  })
  it('falls back to conf and json, and keeps a list of the one plugin', () => {
    put('10-a.conf', { cniVersion: '0.4.0', name: 'a', type: 'loopback', extra: 1 })
    put('20-b.json', { name: 'b', type: 'dummy' })
    const { cniVersion, text } = loadNetwork(dir, 'a')
    assert.equal(cniVersion, '0.4.0')
    assert.deepEqual(JSON.parse(text), {
      cniVersion: '0.4.0',
      name: 'a',
      plugins: [{ cniVersion: '0.4.0', name: 'a', type: 'loopback', extra: 1 }],
    })
    assert.deepEqual([loadNetwork(dir, 'b').cniVersion, loadNetwork(dir, 'b').plugins[0]?.type], ['0.1.0', 'dummy'])
  })
  it('gives the first file in lexical order, of any extension, when no name is asked for', () => {
    put('20-b.conflist', { name: 'b', plugins: [bridge] })
    put('10-a.conf', { name: 'a', type: 'loopback' })
    put('05-not-a-network.txt', {})
    assert.equal(loadNetwork(dir).name, 'a')
  })
  it('says that the directory is missing or empty', () => {
    assert.throws(() => loadNetwork(`${dir}/none`, 'a'), {
      message: `Cannot find a network: there is no directory ${dir}/none`,
    })
    assert.throws(() => loadNetwork(dir), {
      message: `Cannot find a network in ${dir}: it has no *.conflist, *.conf or *.json file`,
    })
    put('10-pod-network.conflist', { name: 'pod-network', plugins: [bridge] })
    assert.throws(() => loadNetwork(dir, 'pod-netwrk'), /has pod-network, did you mean "pod-network"\?$/)
  })
  const malformed: Record<string, [object | string, RegExp]> = {
    'text that is no JSON': ['{"name":', /: it is not JSON: /],
    'a list of lists': ['[]', /: the configuration \[\]: want an object/],
    'no name': [{ plugins: [bridge] }, /: name: it is missing$/],
    'a name that is none': [{ name: 'a b', plugins: [bridge] }, /: name "a b": want a letter or digit/],
    'a plugin without type': [{ name: 'a', plugins: [bridge, { x: 1 }] }, /: plugins\[1\]\.type: it is missing$/],
    'a type that is a path': [
      { name: 'a', plugins: [{ type: '../bin/sh' }] },
      /plugins\[0\]\.type "\.\.\/bin\/sh": want the name of a plugin$/,
    ],
    'a plugin that is none': [{ name: 'a', plugins: ['bridge'] }, /plugins\[0\] "bridge": want an object/],
    'plugins that are none': [{ name: 'a', plugins: {} }, /plugins \{\}: want an array/],
    'an empty list': [{ name: 'a', plugins: [] }, /"plugins" is empty/],
    'no plugins': [{ name: 'a' }, /it has no "plugins"/],
    'a version that is none': [{ name: 'a', cniVersion: 'one', plugins: [bridge] }, /cniVersion "one": want a version/],
    'a version nobody knows': [
      { name: 'a', cniVersion: '0.9.0', plugins: [bridge] },
      /cniVersion "0\.9\.0": want one of 0\.1\.0/,
    ],
    'a capability that is neither on nor off': [
      { name: 'a', plugins: [{ type: 'x', capabilities: { ips: 'yes' } }] },
      /capabilities\.ips "yes": want true or false/,
    ],
  }
  for (const [what, [content, message]] of Object.entries(malformed)) {
    it(`names the file with ${what}`, () => {
      put('10-a.conflist', content)
      put('20-b.conflist', { name: 'b', plugins: [bridge] })
      assert.throws(() => loadNetwork(dir, 'b'), {
        name: 'ValueError',
        message: new RegExp(`^Cannot read ${dir}/10-a.conflist.*${message.source}`),
      })
    })
  }
  it('reads disableCheck, disableGC and loadOnlyInlinedPlugins as booleans or their names', () => {
    for (const [value, wanted] of [
      [true, true],
      [false, false],
      ['true', true],
      ['TRUE', true],
      ['False', false],
    ] as const) {
      const { disableCheck, disableGC } = parse({
        name: 'a',
        disableCheck: value,
        disableGC: value,
        loadOnlyInlinedPlugins: value,
        plugins: [bridge],
      })
      assert.deepEqual([disableCheck, disableGC], [wanted, wanted])
    }
    for (const key of ['disableCheck', 'disableGC', 'loadOnlyInlinedPlugins']) {
      for (const junk of ['yes', 1, [], {}, ''])
        assert.throws(
          () => parse({ name: 'a', [key]: junk, plugins: [bridge] }),
          new RegExp(`${key} .*: want true or false$`),
        )
    }
  })
  it('appends drop-ins in lexical order, and keeps what was put together', () => {
    put('10-a.conflist', { cniVersion: '1.1.0', name: 'a', plugins: [bridge] })
    put('a/20.conf', { type: 'tuning' })
    put('a/10.conf', { type: 'portmap', capabilities: { portMappings: true, ips: false } })
    put('a/30.txt', { type: 'no' })
    put('a/deeper/10.conf', { type: 'no' })
    const { plugins, text } = loadNetwork(dir, 'a')
    assert.deepEqual(
      plugins.map(({ type, capabilities }) => [type, capabilities]),
      [
        ['bridge', []],
        ['portmap', ['portMappings']],
        ['tuning', []],
      ],
    )
    assert.deepEqual(
      parseNetwork(text, 'the cache').plugins.map(({ type }) => type),
      ['bridge', 'portmap', 'tuning'],
    )
  })
  it('works with drop-ins alone, without any, and ignores them with loadOnlyInlinedPlugins', () => {
    put('10-a.conflist', { name: 'a' })
    put('a/10.conf', { type: 'portmap' })
    put('20-b.conflist', { name: 'b', loadOnlyInlinedPlugins: true, plugins: [bridge] })
    put('b/10.conf', { type: 'portmap' })
    put('30-c.conflist', { name: 'c', plugins: [bridge] })
    mkdirSync(join(dir, 'c'))
    assert.deepEqual(
      ['a', 'b', 'c'].map((name) => loadNetwork(dir, name).plugins.map(({ type }) => type)),
      [['portmap'], ['bridge'], ['bridge']],
    )
  })
  it('refuses no plugin at all, and loadOnlyInlinedPlugins without plugins', () => {
    put('10-a.conflist', { name: 'a' })
    assert.throws(() => loadNetwork(dir, 'a'), {
      message: `Cannot read ${dir}/10-a.conflist: it has no "plugins", and ${dir}/a has no *.conf file`,
    })
    put('10-a.conflist', { name: 'a', loadOnlyInlinedPlugins: 'true' })
    put('a/10.conf', { type: 'portmap' })
    assert.throws(() => loadNetwork(dir, 'a'), /"loadOnlyInlinedPlugins" is true and "plugins" is missing$/)
  })
  it('names the drop-in that is malformed', () => {
    put('10-a.conflist', { name: 'a', plugins: [bridge] })
    put('a/10.conf', '{')
    assert.throws(() => loadNetwork(dir, 'a'), new RegExp(`^ValueError: Cannot read ${dir}/a/10.conf: it is not JSON`))
    put('a/10.conf', {})
    assert.throws(() => loadNetwork(dir, 'a'), { message: `Cannot read ${dir}/a/10.conf: type: it is missing` })
  })

  function put(name: string, content: object | string): void {
    const file = join(dir, name)
    mkdirSync(dirname(file), { recursive: true })
    writeFileSync(file, typeof content === 'string' ? content : JSON.stringify(content))
  }
})

describe('parseNetwork()', () => {
  it('takes the highest of cniVersions and cniVersion that is not above ours', () => {
    const versions = (cniVersions: unknown, cniVersion?: string) =>
      parse({ name: 'a', ...(cniVersion && { cniVersion }), cniVersions, plugins: [bridge] }).cniVersion
    assert.equal(versions(['0.4.0', '1.0.0', '0.3.1']), '1.0.0')
    assert.equal(versions(['1.0.0', '1.2.0', '0.10.0', '1.1.0', '2.0.0']), '1.1.0')
    assert.equal(versions(['0.3.1'], '1.0.0'), '1.0.0')
    assert.equal(versions(['1.0.0'], '9.9.9'), '1.0.0')
    assert.equal(versions([], '0.4.0'), '0.4.0')
    assert.equal(versions(['7.0.0']), '0.1.0')
    assert.throws(() => versions(['1.0.0', 'new']), /cniVersions\[1\] "new": want a version/)
    assert.throws(() => versions([1]), /cniVersions\[0\] 1: want a version/)
    assert.throws(() => versions('1.0.0'), /cniVersions "1\.0\.0": want an array/)
  })
  it('matches keys in any case', () => {
    const { name, cniVersion, plugins } = parse({
      Name: 'a',
      CNIVersion: '1.0.0',
      Plugins: [{ Type: 'bridge', Capabilities: { ips: true } }],
    })
    assert.deepEqual([name, cniVersion, plugins[0]?.type, plugins[0]?.capabilities], ['a', '1.0.0', 'bridge', ['ips']])
  })
  it('never throws anything but ValueError', () => {
    const any = fc.jsonValue()
    const list = fc.record(
      {
        name: fc.oneof(fc.constant('a'), any),
        cniVersion: any,
        cniVersions: any,
        plugins: fc.oneof(any, fc.array(fc.record({ type: any, capabilities: any }))),
        disableGC: any,
      },
      { requiredKeys: [] },
    )
    fc.assert(
      fc.property(list, (conf) => {
        try {
          return parse(conf).plugins.length > 0
        } catch (cause) {
          return (cause as Error).name === 'ValueError'
        }
      }),
      { numRuns: 1000 },
    )
  })
})

describe('parseJson()', () => {
  it('gives back numbers that a double cannot hold as they were written', () => {
    const text = '{"a":12345678901234567890,"b":[1,-0,1.50,9007199254740993],"c":1e400,"d":"12345678901234567890"}'
    assert.equal(JSON.stringify(parseJson(text, 'it')), text)
  })
})

function parse(conf: object) {
  return parseNetwork(JSON.stringify(conf), 'it')
}
