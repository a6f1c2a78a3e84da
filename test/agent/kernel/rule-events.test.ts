// lane: quick
// Tests agent/kernel.
import assert from 'node:assert/strict'
import { type RuleChange, readChanges } from '../../../agent/kernel/rule-events.ts'
import { request } from '../../../lib/os/rtnetlink.ts'

const text = (value: string) => new TextEncoder().encode(`${value}\0`)
const FAMILY = { inet: 1, ip: 2, ip6: 10, bridge: 7 } as const

function message(
  type: number,
  family: keyof typeof FAMILY,
  attributes: readonly (readonly [number, Uint8Array])[],
  subsystem = 10,
): Uint8Array {
  return request((subsystem << 8) | type, Uint8Array.of(FAMILY[family], 0, 0, 0), 0, attributes)
}

function told(...messages: readonly Uint8Array[]): { whole: boolean; changes: RuleChange[] } {
  const changes: RuleChange[] = []
  const whole = readChanges(Buffer.concat(messages), (change) => changes.push(change))
  return { whole, changes }
}

/** Small and good enough: the same cases in each run. */
function randoms(seed: number): (below: number) => number {
  let state = seed
  return (below) => {
    state = (Math.imul(state, 1_103_515_245) + 12_345) >>> 0
    return (state >>> 8) % below
  }
}

describe('what the kernel tells of nft', () => {
  const some = [
    message(2, 'inet', [[1, text('plumb_agent')]]),
    message(3, 'ip', [
      [1, text('filter')],
      [3, text('FORWARD')],
    ]),
    message(8, 'ip6', [
      [1, text('filter')],
      [2, text('PLUMB-FORWARD')],
      [4, new Uint8Array(40)],
    ]),
    message(12, 'bridge', [
      [1, text('other')],
      [2, text('many')],
      [3, new Uint8Array(400)],
    ]),
    message(15, 'inet', [[1, Uint8Array.of(0, 0, 0, 9)]]),
  ]

  it('tables, chains, rules and the rest are told with their table, family and chain; the end of a transaction is no change', () => {
    assert.deepEqual(told(...some), {
      whole: true,
      changes: [
        { family: 'inet', table: 'plumb_agent', what: 'table', gone: true },
        { family: 'ip', table: 'filter', what: 'chain', chain: 'FORWARD', gone: false },
        { family: 'ip6', table: 'filter', what: 'rule', chain: 'PLUMB-FORWARD', gone: true },
        { family: undefined, table: 'other', what: 'other', gone: false },
      ],
    })
    // Another subsystem, such as conntrack.
    assert.deepEqual(told(message(2, 'inet', [[1, text('plumb_agent')]], 1)), { whole: true, changes: [] })
  })

  it('the end of a transaction names the program that made it', () => {
    const end = message(15, 'inet', [
      [1, Uint8Array.of(0, 0, 0, 9)],
      [2, Uint8Array.of(0, 0, 1, 2)],
      [3, text('reset.sh')],
    ])
    const programs: unknown[] = []
    const made = (program: unknown) => programs.push(program)
    readChanges(Buffer.concat([...some, end]), () => {}, made)
    assert.deepEqual(programs, [{ pid: 258, name: 'reset.sh' }])
  })

  it('a piece that is cut off anywhere is noticed, and what comes before the cut is told', () => {
    const all = Buffer.concat(some)
    const ends = some.map((_, i) => Buffer.concat(some.slice(0, i + 1)).length)
    for (let length = 1; length < all.length; length++) {
      const changes: RuleChange[] = []
      const whole = readChanges(all.subarray(0, length), (change) => changes.push(change))
      assert.equal(whole, ends.includes(length), `${length} bytes`)
      assert.deepEqual(
        changes,
        told(...some).changes.slice(0, ends.filter((end) => end <= length).length),
        `${length} bytes`,
      )
    }
  })

  it('random bytes and messages with wrong bytes are no error, and come to an end', () => {
    const random = randoms(7)
    for (let i = 0; i < 20_000; i++) {
      const piece = i % 2 ? Buffer.from(Buffer.concat(some)) : Buffer.alloc(random(200))
      const spoiled = i % 2 ? 1 + random(8) : piece.length
      for (let n = 0; n < spoiled && piece.length > 0; n++) piece[i % 2 ? random(piece.length) : n] = random(256)
      let changes = 0
      readChanges(piece, () => changes++)
      assert.ok(changes <= piece.length / 16)
    }
  })
})
