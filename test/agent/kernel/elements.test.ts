// lane: netns
// Tests agent/kernel/elements.ts: sets and maps of any size, in a table of the kernel's own.
import assert from 'node:assert/strict'
import { dumpElements } from '../../../agent/kernel/element-dump.ts'
import { Elements, type Shape } from '../../../agent/kernel/elements.ts'
import { inside } from '../../../lib/os/netns.ts'
import { generation } from '../../../lib/os/nftables.ts'
import type { Run } from '../../../lib/os/run.ts'
import { parse } from '../../../lib/text/values.ts'
import { inNamespaces } from '../../support/harness.ts'

const SHAPES: Readonly<Record<string, Shape>> = {
  pods4: { key: ['ipv4_addr'] },
  pods6: { key: ['ipv6_addr'] },
  ports: { key: ['ipv4_addr', 'inet_proto', 'inet_service'] },
  vips: { key: ['ipv4_addr', 'inet_proto', 'inet_service'], value: ['mark'] },
  slots: { key: ['mark', 'mark'], value: ['ipv4_addr', 'inet_service'] },
  verdicts: { key: ['ipv4_addr'], value: 'verdict' },
}
const TABLE = `table inet t {
  chain open { accept; }
  chain shut { drop; }
  set pods4 { type ipv4_addr; }
  set pods6 { type ipv6_addr; }
  set ports { type ipv4_addr . inet_proto . inet_service; }
  map vips { type ipv4_addr . inet_proto . inet_service : mark; }
  map slots { type mark . mark : ipv4_addr . inet_service; }
  map verdicts { type ipv4_addr : verdict; }
}
`
const FULL = {
  pods4: '10.1.0.1',
  pods6: 'fd00::1',
  ports: '10.1.0.1 . udp . 53',
  vips: '10.96.0.1 . tcp . 443',
  slots: '0x00000007 . 0x00000000',
  verdicts: '10.1.0.1',
} as const
const VALUES: Readonly<Record<string, string>> = { vips: '0x00000007', slots: '10.1.0.1 . 6443', verdicts: 'goto shut' }
/** Sets this large are put in place in one transaction, and one element of them costs the same as one of few. */
const MANY = 50_000

interface Lab {
  readonly elements: Elements
  readonly run: Run
  /** How many scripts nft got, and how often the kernel was asked for a set's elements. */
  readonly count: { scripts: number; dumps: number }
  /** What happens during a dump of a set, before the kernel is asked for the last time. */
  readonly during: { dump?: (set: string) => void }
  /** A fresh one on the same table, as after a restart. */
  again(): Elements
  by(line: string): Promise<void>
  /** The same within a dump. */
  bySync(line: string): void
  /** The elements that nft lists, in its own words. */
  listed(set: string): Promise<string[]>
}

function inTable(work: (lab: Lab) => Promise<void>, ms = 20_000) {
  return inNamespaces(['node'], async ({ node }, test) => {
    test.timeout(ms)
    const path = parse.netns(node.path)
    const count = { scripts: 0, dumps: 0 }
    const during: Lab['during'] = {}
    const run: Run = async (argv, stdin) => {
      count.scripts++
      return node.exec(argv, { stdin })
    }
    const kernel = {
      generation: () => inside(path, () => generation()),
      dump: (table: string, set: string) => {
        count.dumps++
        const found = inside(path, () => dumpElements(table, set))
        during.dump?.(set)
        return found
      },
    }
    const by = async (line: string) => {
      const { status, stderr } = await node.exec(['nft', '-f', '-'], { stdin: line })
      assert.equal(status, 0, stderr)
    }
    const bySync = (line: string) =>
      assert.equal(Bun.spawnSync(['nsenter', `--net=${node.path}`, 'nft', ...line.split(' ')]).exitCode, 0)
    const listed = async (set: string) => {
      const { stdout } = await node.exec([
        'nft',
        '-y',
        '-n',
        'list',
        VALUES[set] === undefined ? 'set' : 'map',
        'inet',
        't',
        set,
      ])
      const text = /elements = \{([^}]*)\}/.exec(stdout)?.[1] ?? ''
      return text
        .split(',')
        .map((one) => one.trim())
        .filter(Boolean)
        .sort()
    }
    await by(TABLE)
    const again = () => new Elements('t', SHAPES, kernel)
    await work({ elements: again(), run, count, during, again, by, bySync, listed })
  })
}

/** One element of each kind. */
function fill(elements: Elements): void {
  for (const [name, key] of Object.entries(FULL)) elements.put(name, key, VALUES[name])
}

describe('elements of sets and maps', () => {
  it(
    'are made in one transaction, with the chains that they lead to; a step without news asks nobody; a fresh start finds all of them right',
    inTable(async ({ elements, run, count, again, listed }) => {
      fill(elements)
      elements.put('verdicts', '10.1.0.2', 'goto fresh')
      assert.deepEqual(await elements.step(run, { before: ['add chain inet t fresh'] }), {
        changed: 7,
        repaired: [],
        inherited: [],
      })
      assert.deepEqual(
        [count.scripts, await listed('verdicts')],
        [1, ['10.1.0.1 : goto shut', '10.1.0.2 : goto fresh']],
      )
      assert.deepEqual(await listed('slots'), ['0x00000007 . 0x00000000 : 10.1.0.1 . 6443'])
      const { dumps } = count
      assert.deepEqual(await elements.step(run), { changed: 0, repaired: [], inherited: [] })
      assert.deepEqual([count.scripts, count.dumps], [1, dumps])
      const next = again()
      fill(next)
      next.put('verdicts', '10.1.0.2', 'goto fresh')
      assert.deepEqual(await next.step(run), { changed: 0, repaired: [], inherited: [] })
      assert.equal(count.scripts, 1)
    }),
  )

  it(
    'change, go, and come again: only the difference goes to nft; a chain goes with the element that led to it',
    inTable(async ({ elements, run, listed }) => {
      fill(elements)
      elements.put('verdicts', '10.1.0.2', 'goto fresh')
      await elements.step(run, { before: ['add chain inet t fresh'] })
      elements.put('vips', FULL.vips, '0x00000008')
      elements.remove('pods6', FULL.pods6)
      elements.remove('verdicts', '10.1.0.2')
      elements.remove('ports', FULL.ports)
      elements.put('ports', FULL.ports)
      elements.remove('pods4', '10.9.9.9')
      assert.deepEqual(await elements.step(run, { after: ['delete chain inet t fresh'] }), {
        changed: 3,
        repaired: [],
        inherited: [],
      })
      assert.deepEqual(
        [await listed('vips'), await listed('pods6'), await listed('verdicts')],
        [['10.96.0.1 . 6 . 443 : 0x00000008'], [], ['10.1.0.1 : goto shut']],
      )
    }),
  )

  it(
    'what somebody else adds, removes or changes is found by the next look and put right, and named',
    inTable(async ({ elements, run, by, listed, count }) => {
      fill(elements)
      await elements.step(run)
      const right = await Promise.all(Object.keys(FULL).map(listed))
      await by(`delete element inet t pods4 { 10.1.0.1 }
add element inet t pods6 { fd00::2 }
delete element inet t vips { 10.96.0.1 . tcp . 443 }
add element inet t vips { 10.96.0.1 . tcp . 443 : 9, 10.96.0.2 . sctp . 65535 : 1 }
add element inet t slots { 1 . 2 : 10.1.0.9 . 1 }
delete element inet t verdicts { 10.1.0.1 }
add element inet t verdicts { 10.1.0.1 : accept, 10.1.0.3 : jump open }
`)
      elements.invalidate()
      const { repaired } = await elements.step(run)
      assert.deepEqual(repaired.toSorted(), [
        'map slots: 0x00000001 . 0x00000002',
        'map verdicts: 10.1.0.1',
        'map verdicts: 10.1.0.3',
        'map vips: 10.96.0.1 . tcp . 443',
        'map vips: 10.96.0.2 . sctp . 65535',
        'set pods4: 10.1.0.1',
        'set pods6: fd00::2',
      ])
      assert.deepEqual(await Promise.all(Object.keys(FULL).map(listed)), right)
      // Nobody was there since: a look costs one question for the counter.
      const { dumps, scripts } = count
      elements.invalidate()
      assert.deepEqual(await elements.step(run), { changed: 0, repaired: [], inherited: [] })
      assert.deepEqual([count.dumps, count.scripts], [dumps, scripts])
    }),
  )

  it(
    'a transaction that nft refuses changes nothing and says why; the next step finds out what is there',
    inTable(async ({ elements, run, by, listed }) => {
      fill(elements)
      await elements.step(run)
      await by('delete element inet t pods4 { 10.1.0.1 }')
      elements.remove('pods4', '10.1.0.1')
      elements.put('pods4', '10.1.0.2')
      await assert.rejects(elements.step(run), /No such file/)
      assert.deepEqual(await listed('pods4'), [])
      assert.deepEqual(await elements.step(run), { changed: 1, repaired: ['set pods4: 10.1.0.1'], inherited: [] })
      assert.deepEqual(await listed('pods4'), ['10.1.0.2'])
    }),
  )

  it(
    'transactions of others during a look: only the map in question is dumped again, other work has its turn between two dumps, and no change is lost',
    inTable(async ({ elements, run, count, during, by, bySync, listed }) => {
      fill(elements)
      await elements.step(run)
      const right = await listed('pods4')
      await by('add element inet t pods4 { 10.9.9.9 }')
      const seen: number[] = []
      let [turns, isOver] = [0, false]
      const tick = () => {
        turns++
        if (!isOver) setImmediate(tick)
      }
      tick()
      try {
        // Somebody changes a set that was dumped already.
        during.dump = (set) => {
          seen.push(turns)
          if (set === 'slots' && count.dumps === 5) bySync('add element inet t pods4 { 10.9.9.8 }')
        }
        count.dumps = 0
        elements.invalidate()
        assert.deepEqual((await elements.step(run)).repaired, ['set pods4: 10.9.9.9'])
        assert.equal(count.dumps, Object.keys(SHAPES).length + 1)
        assert.equal(new Set(seen).size, seen.length, `turns at the dumps: ${seen.join()}`)
        delete during.dump
        elements.invalidate()
        assert.deepEqual((await elements.step(run)).repaired, ['set pods4: 10.9.9.8'])
        assert.deepEqual(await listed('pods4'), right)
        // Somebody who commits during every dump makes no more than three of each.
        during.dump = () => bySync('add chain inet t busy')
        count.dumps = 0
        await by('add element inet t pods4 { 10.9.9.9 }')
        elements.invalidate()
        await elements.step(run)
        assert.ok(count.dumps <= 3 * Object.keys(SHAPES).length, `${count.dumps} dumps`)
        assert.deepEqual(await listed('pods4'), right)
      } finally {
        isOver = true
      }
    }),
  )

  it(
    'a transaction that fails while another program’s elements are in the maps: the next step removes them, and a failed first step still tells what it inherited',
    inTable(async ({ elements, run, by, again, listed }) => {
      fill(elements)
      await elements.step(run)
      const right = await Promise.all(Object.keys(FULL).map(listed))
      const foreign =
        'add element inet t slots { 1 . 2 : 10.1.0.9 . 1 }\nadd element inet t verdicts { 10.1.0.3 : jump open }\nadd element inet t vips { 10.96.0.2 . tcp . 1 : 0 }\n'
      const named = ['map slots: 0x00000001 . 0x00000002', 'map verdicts: 10.1.0.3', 'map vips: 10.96.0.2 . tcp . 1']
      await by(foreign)
      elements.invalidate()
      const failing = { before: ['add rule inet t absent accept'] }
      await assert.rejects(elements.step(run, failing))
      assert.deepEqual((await elements.step(run)).repaired.toSorted(), named)
      assert.deepEqual(await Promise.all(Object.keys(FULL).map(listed)), right)
      await by(foreign)
      const next = again()
      fill(next)
      await assert.rejects(next.step(run, failing))
      assert.deepEqual((await next.step(run)).inherited.toSorted(), named)
      assert.deepEqual(await Promise.all(Object.keys(FULL).map(listed)), right)
    }),
  )

  it(
    `${MANY} of them: one transaction, one more costs what one of few does, and a fresh start takes them in`,
    inTable(async ({ elements, run, count, again }) => {
      const key = (i: number) => `10.${(i >> 16) & 255}.${(i >> 8) & 255}.${i & 255} . tcp . ${1 + (i % 60_000)}`
      const all = (to: Elements) => {
        for (let i = 0; i < MANY; i++) to.put('vips', key(i), `0x${i.toString(16).padStart(8, '0')}`)
      }
      all(elements)
      assert.deepEqual(await elements.step(run), { changed: MANY, repaired: [], inherited: [] })
      assert.equal(count.scripts, 1)
      const next = again()
      all(next)
      next.put('vips', '10.255.0.1 . udp . 53', '0x00000001')
      next.remove('vips', key(7))
      // Only what nobody wants is named.
      assert.deepEqual(await next.step(run), { changed: 2, repaired: [], inherited: [`map vips: ${key(7)}`] })
      assert.equal(next.size('vips'), MANY)
    }, 120_000),
  )
})
