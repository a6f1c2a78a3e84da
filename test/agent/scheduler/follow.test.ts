// lane: quick
// Tests agent/scheduler.
import assert from 'node:assert/strict'
import { follow, type Source } from '../../../agent/scheduler/follow.ts'
import { StoreError } from '../../../agent/store/store.ts'
import { until } from '../../support/harness.ts'

/** One watch of a server that does as it is told: what it says, and then how it goes on. */
interface Watch {
  readonly says: readonly (number | 'gone')[]
  readonly ending: 'ends' | 'fails' | 'is silent'
}

/** A server with a revision, what it was asked, and what a follower of it knows. */
function server(watches: readonly Watch[], lists: readonly (number | Error)[]) {
  const asked: string[] = []
  const left = { watches: [...watches], lists: [...lists] }
  const seen = { revision: undefined as number | undefined, live: [] as boolean[] }
  const source: Source<number, number | 'gone'> = {
    known: () => seen.revision,
    async list() {
      asked.push('list')
      const next = left.lists.shift()
      if (next === undefined || next instanceof Error) throw next ?? new StoreError('away')
      seen.revision = next
    },
    async *watch(after, signal) {
      asked.push(`watch after ${after}`)
      const next = left.watches.shift() ?? { says: [], ending: 'is silent' }
      yield* next.says
      if (next.ending === 'fails') throw new StoreError('cut')
      if (next.ending === 'is silent')
        await new Promise<void>((resolve) =>
          signal.aborted ? resolve() : signal.addEventListener('abort', () => resolve()),
        )
    },
    apply(answer) {
      if (answer === 'gone') {
        seen.revision = undefined
        return false
      }
      seen.revision = answer
      return true
    },
    live: (isLive) => void seen.live.push(isLive),
    relist() {
      seen.revision = undefined
    },
  }
  return { source, asked, seen }
}

const PATIENCE = { leastMs: 1, mostMs: 4 }

async function asks(
  given: ReturnType<typeof server>,
  count: number,
  patience: Parameters<typeof follow>[1] = PATIENCE,
): Promise<readonly string[]> {
  const ending = new AbortController()
  const following = follow(given.source, patience, ending.signal)
  await until(() => given.asked.length >= count, 10_000)
  ending.abort()
  await following
  return given.asked.slice(0, count)
}

describe('follow()', () => {
  it('lists once and watches from there', async () => {
    const one = server([{ says: [8, 9], ending: 'is silent' }], [7])
    assert.deepEqual(await asks(one, 2), ['list', 'watch after 7'])
  })

  it('goes on from the last revision after a watch that ended or failed, without listing', async () => {
    const one = server(
      [
        { says: [8, 9], ending: 'ends' },
        { says: [10], ending: 'fails' },
      ],
      [7],
    )
    assert.deepEqual(await asks(one, 4), ['list', 'watch after 7', 'watch after 9', 'watch after 10'])
  })

  it('lists again when the server no longer has what came in between', async () => {
    const one = server([{ says: [8, 'gone'], ending: 'is silent' }], [7, 40])
    assert.deepEqual(await asks(one, 4), ['list', 'watch after 7', 'list', 'watch after 40'])
  })

  it('asks again until a list succeeds', async () => {
    const one = server([], [new StoreError('away'), new StoreError('away'), 3])
    assert.deepEqual(await asks(one, 4), ['list', 'list', 'list', 'watch after 3'])
  })

  it('begins a watch again that says nothing for too long, from where it was', async () => {
    const one = server(
      [
        { says: [8], ending: 'is silent' },
        { says: [], ending: 'is silent' },
      ],
      [7],
    )
    assert.deepEqual(await asks(one, 3, { ...PATIENCE, idleMs: 20 }), ['list', 'watch after 7', 'watch after 8'])
  })

  it('lists again after two watches that said nothing: the server was put back to before the known revision, and tells nothing until it is past it', async () => {
    const silent: Watch = { says: [], ending: 'is silent' }
    const one = server(
      [
        { says: [800], ending: 'ends' },
        silent,
        silent,
        { says: [9], ending: 'ends' },
        silent,
        { says: [10], ending: 'is silent' },
        silent,
      ],
      [7, 8],
    )
    const wanted = [
      'list',
      'watch after 7',
      'watch after 800',
      'watch after 800',
      'list',
      'watch after 8',
      'watch after 9',
      'watch after 9',
      'watch after 10',
    ]
    assert.deepEqual(await asks(one, wanted.length, { ...PATIENCE, idleMs: 20 }), wanted)
  })

  it('says when a watch keeps everything up to date, and when none does', async () => {
    const one = server([{ says: [8], ending: 'ends' }], [7])
    await asks(one, 3)
    assert.deepEqual(one.seen.live.slice(0, 2), [true, false])
  })

  it('ends with a defect', async () => {
    const one = server([], [new TypeError('a defect')])
    await assert.rejects(follow(one.source, PATIENCE, new AbortController().signal), { name: 'TypeError' })
  })
})
