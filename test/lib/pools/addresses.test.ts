// lane: quick
// Tests lib/pools.
import assert from 'node:assert/strict'
import { existsSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { type AddressStore, addressStore } from '../../../lib/pools/addresses.ts'
import { parse } from '../../../lib/text/values.ts'
import { freshPool, owner, refusal, sets, take } from '../../support/address-store.ts'

let here: ReturnType<typeof freshPool>

describe('addressStore()', () => {
  beforeEach(() => {
    here = freshPool()
  })
  afterEach(() => here.remove())

  it("keeps host-local's layout, closed to others", () => {
    const store = here.store()
    const given = store.take(owner('c1'), sets('10.1.0.0/24+10.2.0.0/24', 'fd00::/64'), [])
    assert.deepEqual(given, [
      { address: '10.1.0.2/24', gateway: '10.1.0.1' },
      { address: 'fd00::2/64', gateway: 'fd00::1' },
    ] as unknown)
    assert.deepEqual(here.files(), {
      '10.1.0.2': 'c1\r\neth0',
      'fd00::2': 'c1\r\neth0',
      'last_reserved_ip.0': '10.1.0.2',
      'last_reserved_ip.1': 'fd00::2',
    })
    const mode = (name: string) => (statSync(join(here.dataDir, name)).mode & 0o777).toString(8)
    assert.deepEqual(['net', 'net/10.1.0.2', 'net/lock', '.plumb', '.plumb/net'].map(mode), [
      '755',
      '600',
      '600',
      '700',
      '700',
    ])
    assert.deepEqual(readdirSync(join(here.dataDir, '.plumb/net')).sort(), ['c1:eth0', 'stamp'])
  })

  it('take() refuses an owner that has addresses, and frees none of them', () => {
    const store = here.store()
    take(store, owner('c1'), sets('10.1.0.0/24'))
    const before = here.files()
    assert.throws(
      () => take(store, owner('c1'), sets('10.1.0.0/24')),
      refusal(4, /^10\.1\.0\.2 has been allocated to c1, duplicate allocation is not allowed$/),
    )
    assert.throws(
      () => take(store, owner('c1'), sets('10.1.0.0/24'), '10.1.0.9'),
      refusal(4, /^10\.1\.0\.2 has been allocated/),
    )
    assert.deepEqual(here.files(), before)
    assert.deepEqual(take(store, owner('c1', 'eth1'), sets('10.1.0.0/24')), ['10.1.0.3'])
  })

  it('release() frees the owner alone, all of it, and is content with nothing to free', () => {
    const store = here.store()
    store.release(owner('c1'))
    assert.equal(store.holds(owner('c1')), false)
    store.keepOnly([])
    store.ready(sets('10.1.0.0/24'))
    assert.deepEqual(readdirSync(here.dataDir), [])
    for (const who of [owner('c1'), owner('c1', 'eth1'), owner('c2')])
      take(store, who, sets('10.1.0.0/24', 'fd00::/64'))
    store.release(owner('c1'))
    store.release(owner('c1'))
    store.release(owner('nobody'))
    assert.deepEqual(here.reserved(), ['10.1.0.3', '10.1.0.4', 'fd00::3', 'fd00::4'])
    assert.deepEqual([owner('c1'), owner('c1', 'eth1'), owner('c2'), owner('c2', 'eth1')].map(store.holds), [
      false,
      true,
      true,
      false,
    ])
  })

  it('release() frees files of an old host-local, which hold the bare id, and only when there are no newer ones', () => {
    const store = here.store()
    here.foreign('10.1.0.7', 'c1')
    here.foreign('10.1.0.8', 'c1\r\neth0')
    assert.throws(
      () => take(store, owner('c1', 'eth9'), sets('10.1.0.0/24')),
      refusal(4, /^10\.1\.0\.7 has been allocated to c1/),
    )
    store.release(owner('c1'))
    assert.deepEqual(here.reserved(), ['10.1.0.7'])
    assert.equal(here.trusted(), true)
    assert.equal(store.holds(owner('c1', 'eth5')), true)
    store.release(owner('c1'))
    assert.deepEqual(here.reserved(), [])
  })

  it('reads files with blanks around', () => {
    const store = here.store()
    here.foreign('10.1.0.7', ' c1 \r\n eth0 \r\n\n')
    here.foreign('10.1.0.8', 'c2\neth0\n')
    assert.deepEqual([store.holds(owner('c1')), store.holds(owner('c2'))], [true, true])
    for (const id of ['c1', 'c2']) store.release(owner(id))
    assert.deepEqual(here.reserved(), [])
  })

  it('takes a file that a crash left empty or full of zeros as free, and removes it', () => {
    const store = here.store()
    here.foreign('10.1.0.2', '')
    here.foreign('10.1.0.3', ' \r\n')
    here.foreign('10.1.0.4', '\0\0\0\0')
    here.foreign('10.1.0.5', 'c9\r\neth0')
    assert.deepEqual(take(store, owner('c1'), sets('10.1.0.0/24')), ['10.1.0.2'])
    assert.deepEqual(here.reserved(), ['10.1.0.2', '10.1.0.5'])
    assert.deepEqual(take(store, owner('c2'), sets('10.1.0.0/24'), '10.1.0.4'), ['10.1.0.4'])
  })

  it('gives the wanted address of each set, however many sources name it', () => {
    const store = here.store()
    const from = sets('10.1.0.0/24+10.2.0.0/24', 'fd00::/64')
    assert.deepEqual(take(store, owner('c1'), from, 'fd00::77', '10.2.0.77', '10.2.0.77'), ['10.2.0.77', 'fd00::77'])
    assert.deepEqual(take(store, owner('c2'), from, 'fd00::99'), ['10.2.0.78', 'fd00::99'])
  })

  it('refuses a wanted address out of range, taken, left over or the gateway, and takes nothing then', () => {
    const store = here.store()
    const from = sets('10.1.0.0/24', 'fd00::/64')
    assert.throws(() => take(store, owner('c1'), from, '10.9.0.1'), refusal(7, /10\.9\.0\.1/))
    assert.deepEqual(readdirSync(here.dataDir), [])
    take(store, owner('c1'), from)
    const before = here.files()
    const refused = (wanted: string[], message: RegExp, details?: RegExp) =>
      assert.throws(() => take(store, owner('c2'), from, ...wanted), refusal(7, message, details))
    refused(['10.9.0.1'], /^failed to allocate all requested IPs: 10\.9\.0\.1$/)
    refused(['10.1.0.255'], /^failed to allocate all requested IPs: 10\.1\.0\.255$/)
    refused(['10.1.0.5', '10.1.0.6'], /^failed to allocate all requested IPs: 10\.1\.0\.6$/)
    refused(['10.1.0.5', 'fd00::1'], /^requested ip fd00::1 is subnet's gateway$/)
    refused(
      ['10.1.0.5', 'fd00::2'],
      /^requested IP address fd00::2 is not available in range set fd00::1-fd00::ffff:ffff:ffff:ffff$/,
      /^eth0 of container c1 has it$/,
    )
    assert.deepEqual(here.files(), before)
    assert.deepEqual(take(store, owner('c2'), from, '10.1.0.5'), ['10.1.0.5', 'fd00::3'])
  })

  it('takes nothing when one set of several is exhausted', () => {
    const store = here.store()
    const from = sets('10.1.0.0/24', '10.2.0.0/30')
    take(store, owner('c1'), from)
    const before = here.files()
    assert.throws(() => take(store, owner('c2'), from), refusal(11, /10\.2\.0\.1-10\.2\.0\.2$/))
    assert.deepEqual(here.files(), before)
  })

  it('gives addresses round robin, and a freed one only after the rest', () => {
    const store = here.store()
    const from = sets('10.1.0.0/29+10.2.0.0/30')
    const given = Array.from({ length: 14 }, () => {
      const [ip] = take(store, owner('c1'), from)
      store.release(owner('c1'))
      return ip
    })
    const round = ['10.1.0.2', '10.1.0.3', '10.1.0.4', '10.1.0.5', '10.1.0.6', '10.2.0.2']
    assert.deepEqual(given, [...round, ...round, '10.1.0.2', '10.1.0.3'])
  })

  it('names the exhausted set, what is in use, and the way out', () => {
    const store = here.store()
    for (const id of ['a', 'b', 'c', 'd', 'e', 'f']) take(store, owner(id), sets('10.1.0.0/29+10.2.0.0/30'))
    assert.throws(
      () => take(store, owner('g'), sets('10.1.0.0/29+10.2.0.0/30')),
      refusal(
        11,
        /^no IP addresses available in range set: 10\.1\.0\.1-10\.1\.0\.6,10\.2\.0\.1-10\.2\.0\.2$/,
        /^6 of 6 are in use; .*run GC/,
      ),
    )
    store.release(owner('c'))
    assert.deepEqual(take(store, owner('g'), sets('10.1.0.0/29+10.2.0.0/30')), ['10.1.0.4'])
  })

  it('ready() tells a full set, and a set whose free addresses all rest', () => {
    const store = here.store(3600)
    const from = sets('10.1.0.0/24', '10.2.0.0/29')
    for (const id of ['a', 'b', 'c', 'd']) take(store, owner(id), from)
    store.ready(from)
    take(store, owner('e'), from)
    assert.throws(
      () => store.ready(from),
      refusal(50, /^no IP addresses available in range set: 10\.2\.0\.1-10\.2\.0\.6$/, /^5 of 5 are in use; /),
    )
    store.release(owner('b'))
    assert.throws(
      () => store.ready(from),
      refusal(50, /10\.2\.0\.6$/, /^4 of 5 are in use and 1 were freed so recently that they rest/),
    )
    here.store().ready(from)
  })

  it('lets a freed address rest for its cooldown, unless it is asked for by name', () => {
    const store = here.store(3600)
    const from = sets('10.1.0.0/30')
    take(store, owner('a'), from)
    store.release(owner('a'))
    assert.throws(
      () => take(store, owner('b'), from),
      refusal(11, /range set: 10\.1\.0\.1-10\.1\.0\.2$/, /^0 of 1 are in use and 1 were freed so recently/),
    )
    assert.deepEqual(take(store, owner('b'), from, '10.1.0.2'), ['10.1.0.2'])
    store.release(owner('b'))
    const freed = join(here.dataDir, '.plumb/net/freed')
    const [line = ''] = readFileSync(freed, 'utf8').split('\n')
    assert.match(line, /^\d{13} 10\.1\.0\.2$/)
    writeFileSync(freed, `torn\n${Date.now() - 3_600_001} 10.1.0.2\n`)
    assert.deepEqual(take(store, owner('c'), from), ['10.1.0.2'])
    store.release(owner('c'))
    assert.doesNotMatch(readFileSync(freed, 'utf8'), /torn/)
    writeFileSync(freed, `${Date.now() + 3_600_000} 10.1.0.2\n`)
    assert.deepEqual(take(store, owner('c'), from), ['10.1.0.2'])
  })

  it('keepOnly() frees the others and keeps lock, last_reserved_ip and what is no address', () => {
    const store = here.store()
    for (const id of ['a', 'b', 'c']) take(store, owner(id), sets('10.1.0.0/24', 'fd00::/64'))
    here.foreign('10.1.0.50', 'old')
    here.foreign('10.1.0.51', 'kept')
    here.foreign('10.1.0.52', '../../etc/passwd\r\n/x')
    here.foreign('notes.txt', 'mine')
    store.keepOnly([owner('b'), owner('c', 'eth1'), owner('kept', 'eth7')])
    assert.deepEqual(Object.keys(here.files()), [
      '10.1.0.3',
      '10.1.0.51',
      'fd00::3',
      'last_reserved_ip.0',
      'last_reserved_ip.1',
      'notes.txt',
    ])
    assert.ok(existsSync(join(here.dir, 'lock')))
    assert.equal(here.trusted(), true)
    assert.deepEqual(
      ['a', 'b', 'c', 'kept'].map((id) => store.holds(owner(id))),
      [false, true, false, true],
    )
    store.keepOnly([])
    assert.deepEqual(here.reserved(), ['notes.txt'])
  })

  it('keeps a network apart from another, and from one whose name is as long as it gets', () => {
    const other = parse.network('n'.repeat(200))
    take(here.store(), owner('a'), sets('10.1.0.0/24'))
    const store = addressStore(here.dataDir, other)
    assert.deepEqual(take(store, { ...owner('a'.repeat(3000)), network: other }, sets('10.1.0.0/24')), ['10.1.0.2'])
    store.release({ ...owner('a'.repeat(3000)), network: other })
    assert.deepEqual(readdirSync(join(here.dataDir, other)).sort(), ['last_reserved_ip.0', 'lock'])
    assert.deepEqual(here.reserved(), ['10.1.0.2'])
  })

  it('says what is wrong with the disk', () => {
    writeFileSync(join(here.dataDir, 'file'), '')
    const message = (store: AddressStore) => () => take(store, owner('a'), sets('10.1.0.0/24'))
    assert.throws(
      message(addressStore(join(here.dataDir, 'file'), owner('a').network)),
      refusal(5, /^Cannot use the address pool .*\/file\/net: ENOTDIR at /, /something in its path is a file/),
    )
    assert.throws(
      message(addressStore(here.dataDir, parse.network('n'.repeat(300)))),
      refusal(5, /ENAMETOOLONG/, /too long/),
    )
    addressStore(join(here.dataDir, 'file'), owner('a').network).release(owner('a'))
  })
})
