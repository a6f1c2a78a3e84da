// lane: quick
// Tests agent/page and agent/state: what the page computes without a browser.
import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { Glob } from 'bun'
import { HOME, hashOf, type PageAddress, placeOf } from '../../../agent/page/address.ts'
import { AGES, type Fields, readFilter } from '../../../agent/page/filter.ts'
import { cellAt, gridLayout, neighbour } from '../../../agent/page/grid-layout.ts'
import { layout } from '../../../agent/page/layout.ts'
import { fieldText, grouped, named, orderOf, peerFields, roundTrip } from '../../../agent/page/peer-fields.ts'
import { type Row, rowOf } from '../../../agent/state/rows.ts'
import { causeOf, headline } from '../../../agent/state/sentence.ts'
import type { Peer, Status } from '../../../agent/state/status.ts'
import { viewsOfPage } from '../../../scripts/docs.ts'
import { generator } from '../../support/random.ts'
import { peers, scripted } from '../../support/scripted.ts'

const NOW = Date.UTC(2026, 10, 1, 12, 30)

/** Rows of peers. `since` is for those that are lost. */
function rows(count: number, change: (peer: Peer, i: number) => Partial<Peer> = () => ({}), since?: number): Row[] {
  return peers(count).map((peer, i) => {
    const made = { ...peer, ...change(peer, i) }
    return rowOf(i + 1, made, made.probe?.state === 'silent' || made.problem !== undefined ? since : undefined)
  })
}
const SILENT = { probe: { state: 'silent', sent: 10, lost: 6, ms: 1 } } as const
const clock = (at: number) => new Date(at).toISOString().slice(11, 16)

describe('the picture of a few peers', () => {
  it('gives every card a place of its own inside the picture, the same each time', () => {
    for (const width of [280, 327, 520, 730, 1200]) {
      for (const count of [1, 2, 3, 5, 8, 12]) {
        const drawn = layout(count, width)
        // The cards stand one after the other then.
        if (!drawn) assert.ok(count > 8 || width < 480, `${count} in ${width}`)
        if (!drawn) continue
        assert.deepEqual(layout(count, width), drawn)
        for (const [i, a] of drawn.places.entries()) {
          assert.ok(a.x >= 0 && a.x <= width && a.y >= 0 && a.y <= drawn.height)
          for (const b of drawn.places.slice(i + 1)) assert.ok(Math.hypot(a.x - b.x, a.y - b.y) >= 56)
        }
      }
    }
  })
})

describe('the grid of peers', () => {
  it('has a cell for each peer, none above another, in lines and groups', () => {
    for (const width of [300, 900, 1300]) {
      for (const counts of [[13], [100], [400, 300, 300], [5000], [1, 4999]]) {
        const groups = counts.map((count, i) => ({ name: counts.length > 1 ? `zone ${i}` : '', count }))
        const drawn = gridLayout(groups, width)
        assert.equal(
          drawn.cells.length,
          counts.reduce((sum, count) => sum + count, 0),
        )
        assert.equal(new Set(drawn.cells.map(({ x, y }) => `${x} ${y}`)).size, drawn.cells.length)
        assert.ok(drawn.cells.every(({ x, y }) => x + drawn.size <= width && y + drawn.size <= drawn.height))
        assert.equal(drawn.heads.length, counts.length > 1 ? counts.length : 0)
      }
    }
  })
  it('finds the cell below a pointer, and none between cells', () => {
    const drawn = gridLayout(
      [
        { name: 'a', count: 70 },
        { name: 'b', count: 90 },
      ],
      640,
    )
    for (const [i, { x, y }] of drawn.cells.entries()) {
      assert.equal(cellAt(drawn, x, y), i)
      assert.equal(cellAt(drawn, x + drawn.size - 0.5, y + drawn.size / 2), i)
      assert.equal(cellAt(drawn, x + drawn.size + 0.5, y), undefined)
    }
    assert.equal(cellAt(drawn, 1, 1), undefined)
    assert.equal(cellAt(drawn, 1, 100_000), undefined)
  })
  it('an arrow key goes to the cell beside, above or below, and over the edge of a group', () => {
    const drawn = gridLayout(
      [
        { name: 'a', count: 30 },
        { name: 'b', count: 30 },
      ],
      640,
    )
    const { across } = drawn
    assert.deepEqual(
      [
        neighbour(drawn, 0, 'ArrowRight'),
        neighbour(drawn, 1, 'ArrowLeft'),
        neighbour(drawn, 0, 'ArrowLeft'),
        neighbour(drawn, 0, 'ArrowUp'),
        neighbour(drawn, 2, 'ArrowDown'),
        neighbour(drawn, 30, 'ArrowUp'),
        neighbour(drawn, 5, 'End'),
        neighbour(drawn, 5, 'Home'),
        neighbour(drawn, 59, 'ArrowRight'),
        neighbour(drawn, 5, 'x'),
      ],
      [1, 0, undefined, undefined, across + 2, across, 59, 0, undefined, undefined],
    )
  })
})

describe('the search of the page', () => {
  const all = rows(
    20,
    (_, i) => ({
      zone: i < 4 ? 'b' : 'a',
      version: i === 7 ? '0.9.0' : '0.9.1',
      ...(i === 2 || i === 9 ? SILENT : { probe: { state: 'answers', sent: 10, lost: i === 5 ? 2 : 0, ms: i } }),
      ...(i === 12 && { problem: 'it announces VNI 2' }),
    }),
    NOW - 600_000,
  )
  const fields = peerFields(() => NOW)
  const found = (search: string) => {
    const filter = readFilter(search, fields, fieldText)
    return [all.filter(filter.matches).map(({ n }) => n), filter.mistakes] as const
  }

  it('finds by each key, by several words, by one of several values, and by what is not so', () => {
    for (const [search, numbers] of [
      ['state:silent', [3, 10]],
      ['state:bad', [3, 10, 13]],
      ['state:bad zone:b', [3]],
      ['state:silent,unreachable', [3, 10, 13]],
      ['zone:b', [1, 2, 3, 4]],
      ['!zone:a state:silent', [3]],
      ['version:0.9.0', [8]],
      ['version:0.*', all.map(({ n }) => n)],
      ['node:node-1 !node:node-1*', [1, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19]],
      ['loss>10', [3, 6, 10]],
      ['loss:20', [6]],
      ['loss>=20% loss<30', [6]],
      ['rtt>17', [19, 20]],
      ['rtt<=2ms !state:bad', [1, 2]],
      ['rtt>18000µs', [20]],
      ['since<11m', [3, 10, 13]],
      ['since>11min', []],
      ['ip:198.51.0.7', [7]],
      ['backend:vxlan zone:b', [1, 2, 3, 4]],
      ['VNI', [13]],
      ['"announces vni"', [13]],
      ['text:vni', [13]],
      ['fd00:64:5::', [5]],
      ['10.64.5.0', [5]],
      ['', all.map(({ n }) => n)],
      ['nobody', []],
    ] as const)
      assert.deepEqual(found(search), [numbers, []], search)
  })
  it('says what cannot be searched for, with the nearest key, and passes it over', () => {
    assert.deepEqual(found('stat:silent zone:b'), [[1, 2, 3, 4], ['“stat” cannot be searched for; do you mean state?']])
    assert.match(found('colour:red')[1][0] ?? '', /^“colour” cannot be searched for; there is node, state, zone, /)
    assert.deepEqual(found('rtt>fast')[1], ['“rtt>fast”: want a number, with ms, µs, us, s or nothing after it'])
    assert.deepEqual(found('rtt>5h')[1], ['“rtt>5h”: want a number, with ms, µs, us, s or nothing after it'])
    assert.deepEqual(found('zone>b')[1], ['“zone>b”: zone is no number; want zone:b'])
    assert.deepEqual(found('constructor:x')[1].length, 1)
  })
  it('reads any text without an error', () => {
    const random = generator(7)
    const parts = ['!', ':', '"', '<', '>=', ',', 'state', 'rtt', '5', 'ms', ' ', '%', '\\', '*', 'é', '\u202e']
    const fake: Fields<string> = {
      state: { kind: 'exact', of: (text) => text },
      rtt: { kind: 'number', units: AGES, of: () => 1 },
    }
    for (let i = 0; i < 5000; i++) {
      const search = Array.from({ length: 8 }, () => parts[Math.floor(random() * parts.length)]).join('')
      assert.equal(typeof readFilter(search, fake, (text) => text).matches('state'), 'boolean', search)
    }
  })
  it('finds among 5,000 peers within 50 ms, and sorts them', () => {
    const many = rows(5000, (_, i) => ({
      zone: `z${i % 3}`,
      probe: { state: 'answers', sent: 10, lost: i % 2, ms: i % 90 },
    }))
    const search = (text: string) =>
      named(many)
        .filter(readFilter(text, fields, fieldText).matches)
        .sort(orderOf('-rtt'))
    assert.equal(search('zone:z1 rtt>80').length, many.filter(({ zone, ms = 0 }) => zone === 'z1' && ms > 80).length)
    assert.equal(search('node-49').length, 111)
  })
})

describe('the order of peers', () => {
  it('has the worst first, and names by their numbers', () => {
    const all = rows(30, (_, i) =>
      i === 20
        ? SILENT
        : i === 24
          ? { problem: 'no route' }
          : i === 3
            ? { probe: { state: 'answers', sent: 10, lost: 1, ms: 1 } }
            : {},
    )
    const names = (sort: string) =>
      named(all)
        .sort(orderOf(sort))
        .map(({ node }) => node)
    assert.deepEqual(names('').slice(0, 5), ['node-25', 'node-21', 'node-4', 'node-1', 'node-2'])
    assert.deepEqual(names('node').slice(8, 11), ['node-9', 'node-10', 'node-11'])
    assert.deepEqual(names('-loss').slice(0, 2), ['node-21', 'node-4'])
    assert.deepEqual(
      grouped(all, 'state').map(({ name, rows: some }) => `${name} ${some.length}`),
      ['reachable 28', 'silent 1', 'unreachable 1'],
    )
    assert.deepEqual(
      grouped(all, 'network').map(({ name }) => name),
      ['198.51.0.0/16'],
    )
    assert.deepEqual(
      grouped(all, 'none').map(({ name }) => name),
      [''],
    )
    assert.deepEqual([0.0421, 0.42, 1, 12.34, 1234].map(roundTrip), ['42 µs', '420 µs', '1 ms', '12 ms', '1200 ms'])
  })
})

describe('the address of the page', () => {
  const KEYS = ['overview', 'peers', 'pods', 'events']
  it('says all that the page shows, and an address gives the same page', () => {
    const places: Partial<PageAddress>[] = [
      {},
      { view: 'peers' },
      { view: 'peers', item: 'node-5' },
      {
        view: 'peers',
        q: 'state:silent zone:b rtt>5',
        sort: '-loss',
        group: 'zone',
        selected: 'node-7',
        isPaused: true,
      },
      { view: 'pods', item: 'shop/cart-0', selected: 'abc eth0' },
      { view: 'events', q: '"two words" & more=1 #x %', at: '12:03' },
      { view: 'peers', item: '10.64.1.0/24' },
    ]
    for (const place of places) assert.deepEqual(placeOf(hashOf({ ...HOME, ...place }), KEYS), { ...HOME, ...place })
    assert.equal(
      hashOf({ ...HOME, view: 'peers', q: 'state:silent zone:b', sort: '-loss' }),
      '#/peers?q=state:silent+zone:b&sort=-loss',
    )
    assert.equal(hashOf(HOME), '#/')
  })
  it('reads any address', () => {
    for (const hash of ['', '#', '#/', '#/nowhere', '#/peers/%E0%A4%A', '#/peers?%', '#//', '#/overview/x?q'])
      assert.ok(placeOf(hash, KEYS).view)
    assert.deepEqual(placeOf('#/nowhere/at/all', KEYS), HOME)
    assert.equal(placeOf('#/peers/%E0%A4%A', KEYS).item, '%E0%A4%A')
  })
})

describe('the first sentence', () => {
  const status = (change: Partial<Status>) => scripted({ node: 'node-7', ...change }).status()
  const finding = {
    code: 'DR7',
    title: '',
    severity: 'error',
    text: 'this node drops packets',
    commands: ['sysctl -w x=1'],
  } as const

  it('names the two that are lost, since when, and what they have in common', () => {
    const all = rows(998, (_, i) => ({ zone: i < 300 ? 'b' : 'a', ...(i === 1 || i === 4 ? SILENT : {}) }), NOW)
    assert.equal(
      headline(status({ degraded: ['no answer from node-2 and node-5'] }), all, clock),
      'node-7 is degraded: node-2 and node-5 do not answer since 12:30, both in zone b (998 peers)',
    )
  })
  it('a lost zone is one sentence', () => {
    const all = rows(90, (_, i) => ({ zone: i < 30 ? 'b' : 'a', ...(i < 30 ? SILENT : {}) }), NOW)
    assert.equal(
      headline(status({ degraded: ['no answer from node-1, node-2, node-3 and 27 more'] }), all, clock),
      'node-7 is degraded: 30 of 90 peers do not answer since 12:30, all in zone b',
    )
  })
  it('counts several kinds of loss', () => {
    const all = rows(9, (_, i) => (i < 2 ? SILENT : i < 5 ? { problem: 'no VTEP' } : {}))
    assert.equal(
      headline(status({ degraded: ['x'] }), all, clock),
      'node-7 is degraded: 5 of 9 peers are lost: 2 do not answer, 3 cannot be reached',
    )
  })
  it('has the cause before what follows from it', () => {
    const lost = rows(3, () => SILENT)
    const text = `${finding.text}; run ${finding.commands[0]}`
    const found = { findings: [finding], degraded: ['no answer from node-1', text] }
    assert.equal(headline(status(found), lost, clock), 'node-7 is degraded: this node drops packets')
    assert.equal(
      headline(status({ ready: false, reasons: ['no uplink was found yet'], degraded: ['a'] }), [], clock),
      'node-7 is not ready: no uplink was found yet',
    )
    assert.equal(causeOf({ reasons: ['first', text], degraded: [], findings: [finding] }), 'this node drops packets')
    assert.equal(causeOf({ reasons: [], degraded: [], findings: [] }), undefined)
  })
  it('says that all is well', () => {
    assert.equal(headline(status({}), rows(3), clock), 'node-7 is ready: all 3 peers answer')
    assert.equal(headline(status({}), [], clock), 'node-7 is ready: no other node has a subnet yet')
    const unasked = peers(2).map((peer, i) =>
      rowOf(i, { ...peer, probe: { state: 'unknown', sent: 0, lost: 0 } }, undefined),
    )
    assert.equal(headline(status({}), unasked, clock), 'node-7 is ready: all 2 peers are programmed')
    assert.equal(
      headline(status({}), [...unasked, ...rows(3)], clock),
      'node-7 is ready: all 5 peers are programmed, and 3 answer',
    )
  })
  it('shows hostile names as escapes', () => {
    const all = rows(2, (_, i) => (i === 0 ? { ...SILENT, node: 'a\u202eb\n<i>' } : {}))
    assert.equal(
      headline(status({ degraded: ['x'] }), all, clock),
      'node-7 is degraded: a\\u202eb\\n<i> does not answer (2 peers)',
    )
  })
})

describe('the page', () => {
  let page: Readonly<Record<'html' | 'js' | 'css' | 'icon', string>>
  before(async () => {
    page = (await import('../../../agent/page/index.ts')).page
  })
  it('is text that asks nobody but the agent, by relative addresses', () => {
    assert.match(page.html, /<script type="module" src="page\.js">/)
    for (const [name, text] of Object.entries(page)) {
      assert.ok(text.length > 100, name)
      const addresses = [...text.matchAll(/\b(?:https?:)?\/\/[a-z0-9.-]+\.[a-z]{2,}[^\s"'`)]*/gi)]
        .map(([found]) => found)
        .filter((found) => !found.includes('www.w3.org/'))
      assert.deepEqual(addresses, [], name)
      assert.doesNotMatch(text, /\b(?:src|href)="\//)
    }
    assert.doesNotMatch(page.html, /<style|style="|<script(?! type="module" src)|\son[a-z]+=/)
  })
  it('is at most 120 kB', () => {
    const bytes = Object.values(page).reduce((sum, text) => sum + Buffer.byteLength(text), 0)
    assert.ok(bytes <= 120_000, `${bytes} bytes`)
  })
})

describe('the views of the page', () => {
  const root = join(import.meta.dir, '../../..')
  const files = [...new Glob('agent/page/*.{ts,tsx}').scanSync({ cwd: root })]
  const sources = files.map((file) => readFileSync(join(root, file), 'utf8')).join('\n')
  const found = (pattern: RegExp) => [...new Set([...sources.matchAll(pattern)].map(([, word = '']) => word))].sort()

  it('each has a key of its own, 1 to 9, and every link of the page leads to one', async () => {
    const keys = (await viewsOfPage()).map(({ key }) => key)
    assert.ok(keys.length <= 9 && new Set(keys).size === keys.length, keys.join())
    const links = found(/\bview: '(\w+)'/g)
    assert.ok(links.length > 3)
    assert.deepEqual(
      links.filter((one) => !keys.includes(one)),
      [],
    )
  })
  it('say which lists they ask for', async () => {
    const asks = (await viewsOfPage()).flatMap((view) => view.asks ?? [])
    assert.deepEqual(found(/\buse(?:List|Answer)<[^(]*>\(\s*[`'](\w+)/g), [...new Set(asks)].sort())
  })
})
