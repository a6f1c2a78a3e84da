// lane: quick
// Tests lib/pools/owner-index.ts through lib/pools/addresses.ts, which keeps it.
import assert from 'node:assert/strict'
import { existsSync, readdirSync, readFileSync, rmSync, symlinkSync, unlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { CniError } from '../../../lib/text/errors.ts'
import { freshPool, owner, refusal, sets, take } from '../../support/address-store.ts'
import fc from '../../support/properties.ts'

const LIB = join(import.meta.dir, '../../../lib')
let here: ReturnType<typeof freshPool>

describe('addressStore() index', () => {
  beforeEach(() => {
    here = freshPool()
  })
  afterEach(() => here.remove())

  it('notices every foreign change, however close to its own', () => {
    const store = here.store()
    for (let i = 0; i < 300; i++) {
      take(store, owner('a'), sets('10.1.0.0/24'))
      here.foreign('10.9.0.1', `f${i}\r\neth0`)
      store.release(owner(`f${i}`))
      assert.equal(existsSync(join(here.dir, '10.9.0.1')), false, `round ${i}`)
      store.release(owner('a'))
      assert.equal(here.trusted(), true)
    }
  })

  it('is rebuilt when files, the directory or the index vanish, and after a reboot', () => {
    const store = here.store()
    const from = sets('10.1.0.0/24')
    const index = join(here.dataDir, '.plumb/net')
    const upset: (() => void)[] = [
      () => unlinkSync(join(here.dir, '10.1.0.2')),
      () => rmSync(here.dir, { recursive: true }),
      () => rmSync(join(here.dataDir, '.plumb'), { recursive: true }),
      () => unlinkSync(join(index, 'stamp')),
      () => {
        const text = readFileSync(join(index, 'stamp'), 'utf8')
        writeFileSync(join(index, 'stamp'), text.replace(/^\S+/, '00000000-0000-0000-0000-000000000000'))
      },
    ]
    for (const [i, change] of upset.entries()) {
      take(store, owner(`a${i}`), from, '10.1.0.2')
      take(store, owner(`b${i}`), from)
      assert.equal(here.trusted(), true)
      change()
      if (existsSync(here.dir)) assert.equal(here.trusted(), false, `change ${i}`)
      const left = existsSync(here.dir) ? here.reserved() : []
      assert.equal(store.holds(owner(`a${i}`)), left.includes('10.1.0.2'))
      store.release(owner(`a${i}`))
      store.release(owner(`b${i}`))
      assert.deepEqual(existsSync(here.dir) ? here.reserved() : [], [])
      const files = existsSync(here.dir) ? readdirSync(index).filter((name) => name !== 'owners') : []
      assert.deepEqual(files, existsSync(here.dir) ? ['stamp'] : [])
    }
  })

  it("frees no file that is another's, whatever the index says", () => {
    const store = here.store()
    take(store, owner('a'), sets('10.1.0.0/24'))
    take(store, owner('b'), sets('10.1.0.0/24'))
    const index = join(here.dataDir, '.plumb/net')
    unlinkSync(join(index, 'a:eth0'))
    symlinkSync('10.1.0.2,10.1.0.3,10.1.0.99', join(index, 'a:eth0'))
    assert.equal(here.trusted(), true)
    store.release(owner('a'))
    assert.deepEqual(here.reserved(), ['10.1.0.3'])
  })

  it('takes a holder of more addresses than a link can list', () => {
    const store = here.store()
    for (let i = 0; i < 1000; i++) here.foreign(`10.1.${1 + (i >> 8)}.${i & 255}`, 'reserved')
    assert.deepEqual(take(store, owner('a'), sets('10.1.0.0/16')), ['10.1.0.2'])
    assert.equal(here.trusted(), true)
    assert.equal(store.holds(owner('reserved')), true)
    assert.equal(here.reserved().length, 1001)
    store.release(owner('reserved'))
    assert.deepEqual(here.reserved(), ['10.1.0.2'])
  })

  it('finds each of 1,000 owners in its list, and no other', () => {
    const store = here.store()
    const ids = Array.from({ length: 1000 }, (_, i) => `${'x'.repeat(i % 97)}${i}`)
    for (const [i, id] of ids.entries()) here.foreign(`10.1.${1 + (i >> 8)}.${i & 255}`, `${id}\r\neth0`)
    take(store, owner('a'), sets('10.1.0.0/16'))
    for (const id of ids) {
      assert.equal(here.trusted(), true)
      assert.equal(store.holds(owner(`${id}0`)), ids.includes(`${id}0`))
      store.release(owner(id))
    }
    assert.deepEqual(here.reserved(), ['10.1.0.2'])
  }).timeout(60_000)

  it('frees on a disk where nothing can be written but that', () => {
    const store = here.store()
    take(store, owner('a'), sets('10.1.0.0/24'))
    const index = join(here.dataDir, '.plumb/net')
    rmSync(join(here.dataDir, '.plumb'), { recursive: true })
    writeFileSync(join(here.dataDir, '.plumb'), '')
    store.release(owner('a'))
    assert.deepEqual(here.reserved(), [])
    assert.equal(existsSync(index), false)
    assert.throws(() => take(store, owner('a'), sets('10.1.0.0/24')), refusal(5, /^Cannot use the address pool /))
    assert.deepEqual(here.reserved(), [])
  })
})

describe('addressStore() against a naive model', () => {
  it('gives, frees and refuses alike, through any sequence of calls and foreign changes', () => {
    const ids = ['a', 'b', 'c', 'd', 'e', 'f', 'g', 'h']
    const step = fc.oneof(
      { weight: 6, arbitrary: fc.record({ what: fc.constant('take' as const), id: fc.constantFrom(...ids) }) },
      { weight: 4, arbitrary: fc.record({ what: fc.constant('release' as const), id: fc.constantFrom(...ids) }) },
      {
        weight: 2,
        arbitrary: fc.record({
          what: fc.constant('wanted' as const),
          id: fc.constantFrom(...ids),
          n: fc.integer({ min: 0, max: 7 }),
        }),
      },
      {
        weight: 1,
        arbitrary: fc.record({
          what: fc.constant('foreign' as const),
          id: fc.constantFrom(...ids),
          n: fc.integer({ min: 2, max: 6 }),
        }),
      },
      { weight: 1, arbitrary: fc.record({ what: fc.constant('gone' as const), n: fc.integer({ min: 2, max: 6 }) }) },
      { weight: 1, arbitrary: fc.record({ what: fc.constant('keep' as const), some: fc.subarray(ids) }) },
    )
    fc.assert(
      fc.property(fc.array(step, { maxLength: 40 }), (steps) => {
        here = freshPool()
        const store = here.store()
        const from = sets('10.1.0.0/29')
        const held = new Map<number, string>()
        let last = 6
        const has = (id: string) => [...held.values()].includes(id)
        const expected = (id: string, n: number | undefined) =>
          has(id) || n === undefined || n < 2 || n > 6 || held.has(n) ? undefined : n
        const attempt = (id: string, want: number | undefined, ...wanted: string[]) => {
          if (want === undefined) return void assert.throws(() => take(store, owner(id), from, ...wanted), CniError)
          assert.deepEqual(take(store, owner(id), from, ...wanted), [`10.1.0.${want}`])
          held.set(want, id)
          last = want
        }
        for (const one of steps) {
          if (one.what === 'take') {
            const turn = [2, 3, 4, 5, 6].map((i) => ((last - 2 + i - 1) % 5) + 2)
            attempt(
              one.id,
              expected(
                one.id,
                turn.find((n) => !held.has(n)),
              ),
            )
          } else if (one.what === 'wanted') attempt(one.id, expected(one.id, one.n), `10.1.0.${one.n}`)
          else if (one.what === 'release') {
            store.release(owner(one.id))
            for (const [n, id] of held) if (id === one.id) held.delete(n)
          } else if (one.what === 'foreign' && !held.has(one.n)) {
            here.foreign(`10.1.0.${one.n}`, `${one.id}\r\neth0`)
            held.set(one.n, one.id)
          } else if (one.what === 'gone' && held.delete(one.n)) unlinkSync(join(here.dir, `10.1.0.${one.n}`))
          else if (one.what === 'keep') {
            store.keepOnly(one.some.map((id) => owner(id)))
            for (const [n, id] of held) if (!one.some.includes(id)) held.delete(n)
          }
          assert.deepEqual(
            existsSync(here.dir) ? here.reserved() : [],
            [...held.keys()].sort().map((n) => `10.1.0.${n}`),
          )
          for (const id of ids) assert.equal(store.holds(owner(id)), has(id))
        }
        here.remove()
      }),
      { numRuns: 60 },
    )
  })
})

describe('addressStore() in many processes', () => {
  beforeEach(() => {
    here = freshPool()
  })
  afterEach(() => here.remove())

  /** A process that takes and, when told so, frees again, printing each address. */
  function worker(name: string, rounds: number, storm: boolean) {
    const code = `
      const { addressStore } = await import('${LIB}/pools/addresses.ts')
      const { readRangeSets } = await import('${LIB}/pools/ranges.ts')
      const { writeSync } = await import('node:fs')
      const [, dataDir, name, rounds, storm] = process.argv
      const store = addressStore(dataDir, 'net')
      const sets = readRangeSets([{ at: 'a', ranges: [{ subnet: '10.1.0.0/16' }] }, { at: 'b', ranges: [{ subnet: 'fd00::/64' }] }])
      for (let i = 0; i < Number(rounds); i++) {
        const owner = { network: 'net', containerId: name + '-' + i, ifname: 'eth0' }
        writeSync(1, store.take(owner, sets, []).map(({ address }) => address).join(' ') + '\\n')
        if (storm === 'true') store.release(owner)
      }`
    return Bun.spawn([process.execPath, '-e', code, here.dataDir, name, String(rounds), String(storm)], {
      stdout: 'pipe',
      stderr: 'inherit',
    })
  }

  it('40 processes of 5 calls get 200 addresses, each once; a storm of ADD and DEL leaves none', async () => {
    for (const storm of [false, true]) {
      const all = Array.from({ length: 40 }, (_, i) => worker(`${storm}-${i}`, 5, storm))
      const lines = (await Promise.all(all.map(({ stdout }) => new Response(stdout).text()))).flatMap((text) =>
        text.trim().split('\n'),
      )
      assert.deepEqual(
        await Promise.all(all.map(({ exited }) => exited)),
        all.map(() => 0),
      )
      assert.equal(new Set(lines.map((line) => line.split(' ')[0])).size, 200)
      assert.equal(here.reserved().length, 400)
      assert.equal(here.trusted(), true)
    }
  }).timeout(60_000)

  it('a SIGKILL at any moment leaves whole files, and an index that is right or not believed', async () => {
    const store = here.store()
    for (let round = 0; round < 25; round++) {
      const child = worker(`r${round}`, 100_000, true)
      let seen = 0
      for await (const chunk of child.stdout) {
        seen += chunk.length
        // A different moment of the loop each time.
        if (seen > 40 + round * 97) break
      }
      child.kill('SIGKILL')
      await child.exited
      const now = here.files()
      assert.ok(
        Object.keys(now).every((name) => /^(10\.1|fd00:|last_reserved_ip\.[01]$)/.test(name)),
        Object.keys(now).join(' '),
      )
      const left = here.reserved()
      assert.ok(left.length <= 2)
      for (const name of left) assert.match(now[name] ?? '', /^r\d+-\d+\r\neth0$/)
      const owners = [...new Set(left.map((name) => (now[name] ?? '').split('\r\n')[0] as string))]
      for (const id of owners) {
        assert.equal(store.holds(owner(id)), true)
        store.release(owner(id))
      }
      assert.deepEqual(here.reserved(), [])
    }
    const own = readdirSync(join(here.dataDir, '.plumb/net'))
    assert.ok(own.length <= 3, own.join(' '))
  }).timeout(60_000)
})
