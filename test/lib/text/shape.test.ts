// lane: quick
// Tests lib/text.
import assert from 'node:assert/strict'
import * as v from 'valibot'
import { common, field, read, readLoose } from '../../../lib/text/shape.ts'
import { patient } from '../../support/patience.ts'
import fc from '../../support/properties.ts'

const inner = v.object({ subnet: field.cidr, gateway: v.exactOptional(field.ip) })
const shape = v.object({
  ...common,
  mtu: v.optional(field.int(0, 65535), 0),
  isGateway: v.optional(field.flag, false),
  mode: v.exactOptional(field.word('', 'bridge', 'vepa')),
  ipam: v.optional(v.object({ type: v.optional(field.text, ''), ranges: v.optional(v.array(v.array(inner)), []) }), {}),
  runtimeConfig: v.optional(v.looseObject({ mac: v.exactOptional(field.mac) }), {}),
})
const CONF = { cniVersion: '1.1.0', name: 'net', type: 'x' }

describe('read()', () => {
  const bad: Record<string, object> = {
    'Cannot read mtu "1400": want a whole number, 0 to 65535': { mtu: '1400' },
    'Cannot read mtu 1.5: want a whole number, 0 to 65535': { mtu: 1.5 },
    'Cannot read isGateway "yes": want true or false': { isGateway: 'yes' },
    'Cannot read mode "passthru": want one of bridge, vepa': { mode: 'passthru' },
    'Cannot read ipam.ranges[0][1].subnet "10.1.0.0": want an address with a prefix length such as 10.1.0.0/24 or fd00::/64':
      { ipam: { ranges: [[{ subnet: '10.1.0.0/24' }, { subnet: '10.1.0.0' }]] } },
    'Cannot read ipam.ranges[0][0].subnet: it is missing': { ipam: { ranges: [[{}]] } },
    'Cannot read ipam.ranges {}: want an array': { ipam: { ranges: {} } },
    'Cannot read ipam "host-local": want an object': { ipam: 'host-local' },
    'Cannot read ipam []: want an object': { ipam: [] },
    'Cannot read runtimeConfig.mac "x": want a unicast Ethernet address such as 02:00:0a:f4:00:02': {
      runtimeConfig: { Mac: 'x' },
    },
    'Cannot read name "a b": want a letter or digit, then letters, digits, "_", "." or "-"': { name: 'a b' },
    'Cannot read name: it is missing': { name: null },
    'Cannot read strict "yes": want true or false': { strict: 'yes' },
  }
  for (const [message, keys] of Object.entries(bad))
    it(`says: ${message}`, () =>
      assert.throws(() => read(shape, { ...CONF, ...keys }), { name: 'ValueError', message }))

  it('matches keys in any case, at any depth, and notes it, except what runtimes write', () => {
    const { value, notes } = read(shape, {
      ...CONF,
      MTU: 1400,
      ISGATEWAY: true,
      Ipam: { TYPE: 'host-local', Ranges: [[{ Subnet: '10.1.0.0/24' }]] },
      runtimeConfig: { Mac: '02:00:00:00:00:01' },
    })
    assert.deepEqual(
      [value.mtu, value.isGateway, value.ipam, value.runtimeConfig],
      [1400, true, { type: 'host-local', ranges: [[{ subnet: '10.1.0.0/24' }]] }, { mac: '02:00:00:00:00:01' }],
    )
    assert.deepEqual(
      notes,
      [
        'key "MTU" is read as "mtu"',
        'key "ISGATEWAY" is read as "isGateway"',
        'key "Ipam" is read as "ipam"',
        'key "Ipam.TYPE" is read as "type"',
        'key "Ipam.Ranges" is read as "ranges"',
        'key "Ipam.Ranges[0][0].Subnet" is read as "subnet"',
      ].map((note) => note.replace('Ipam.', 'ipam.').replace('ipam.Ranges[', 'ipam.ranges[')),
    )
  })
  it('notes unknown keys with the nearest known one, and refuses them when strict', () => {
    const keys = { ...CONF, mtus: 1, isGatway: true, somethingElse: 1, ipam: { rangs: [] } }
    const notes = [
      'unknown key "mtus", did you mean "mtu"?',
      'unknown key "isGatway", did you mean "isGateway"?',
      'unknown key "somethingElse"',
      'unknown key "ipam.rangs", did you mean "ranges"?',
    ]
    assert.deepEqual(read(shape, keys).notes, notes)
    assert.throws(() => read(shape, { ...keys, strict: true }), {
      name: 'ValueError',
      message: `Cannot read the configuration: ${notes.join('; ')}; "strict" is true`,
    })
  })
  it('the exactly spelled key wins over one in other case only by standing later, as in Go', () => {
    assert.equal(read(shape, { ...CONF, mtu: 1, MTU: 2 }).value.mtu, 2)
    assert.equal(read(shape, { ...CONF, MTU: 2, mtu: 1 }).value.mtu, 1)
  })
  it('takes null as absent, everywhere', () => {
    const { value } = read(shape, {
      ...CONF,
      mtu: null,
      mode: null,
      ipam: { type: null, ranges: null },
      runtimeConfig: null,
    })
    assert.deepEqual(
      [value.mtu, 'mode' in value, value.ipam, value.runtimeConfig],
      [0, false, { type: '', ranges: [] }, {}],
    )
  })
  it('keeps a key named __proto__ or constructor from doing anything', () => {
    const { notes } = read(
      shape,
      JSON.parse('{"cniVersion":"1.1.0","name":"net","__proto__":{"mtu":9},"constructor":1}'),
    )
    assert.deepEqual(
      notes.map((note) => note.replace(/, did.*/, '')),
      ['unknown key "__proto__"', 'unknown key "constructor"'],
    )
    assert.equal(({} as { mtu?: number }).mtu, undefined)
  })
  it('never throws anything but a ValueError of one short line, whatever it is given', () => {
    const keys = fc.constantFrom(
      'mtu',
      'name',
      'MTU',
      'ipam',
      'ranges',
      'subnet',
      'mode',
      'runtimeConfig',
      'prevResult',
      'args',
      'cni',
      'capabilities',
      'strict',
      '__proto__',
      'toString',
      '',
    )
    const { tree } = fc.letrec((tie) => ({
      tree: fc.oneof(
        { depthSize: 'small' },
        fc.jsonValue(),
        fc.constantFrom('\n', '\0', '"', 'a'.repeat(1000), -0, 1e308),
        fc.array(tie('tree'), { maxLength: 3 }),
        fc.array(fc.tuple(keys, tie('tree')), { maxLength: 5 }).map((pairs) => Object.fromEntries(pairs)),
      ),
    }))
    fc.assert(
      fc.property(tree, (raw) => {
        for (const given of [raw, { ...CONF, ...(raw as object) }]) {
          try {
            read(shape, given)
          } catch (cause) {
            assert.equal((cause as Error).name, 'ValueError', String((cause as Error).stack))
            // An unknown key is named in full only up to 80 characters too.
            assert.doesNotMatch((cause as Error).message, /[\n\0]/)
          }
          readLoose(shape, given)
        }
      }),
      { numRuns: 5000 },
    )
  })
  it('is quick and short about 10 MB in any place', () => {
    const big = 'a'.repeat(1e7)
    for (const keys of [
      { name: `${big}\n` },
      { mode: big },
      { mtu: big },
      { runtimeConfig: { mac: big } },
      { ipam: { ranges: [[{ subnet: big }]] } },
      { [big]: 1, strict: true },
    ]) {
      const started = performance.now()
      assert.throws(
        () => read(shape, { ...CONF, ...keys }),
        ({ message }: Error) => message.length < 300,
      )
      // Far more than it takes: a step per character and key would take minutes.
      assert.ok(performance.now() - started < patient(20_000))
    }
  })
})

describe('readLoose()', () => {
  it('reads every key that can be read by itself, at any depth, and passes over the rest', () => {
    const found = readLoose(shape, {
      ...CONF,
      mtu: 'x',
      isGateway: true,
      mode: 'no',
      ipam: { type: 'host-local', ranges: 'none' },
      runtimeConfig: { mac: 'x' },
      strict: 7,
    })
    assert.deepEqual(
      [found.name, found.mtu, found.isGateway, found.mode, found.ipam],
      ['net', undefined, true, undefined, { type: 'host-local' }],
    )
  })
  it('gives the defaults of what is absent, and survives what is no object', () => {
    assert.deepEqual(readLoose(shape, {}).mtu, 0)
    for (const raw of [null, [], 'x', 7, undefined]) assert.equal(typeof readLoose(shape, raw), 'object')
  })
})
