// lane: quick
// Tests agent/scheduler: parts in loops of their own.
import assert from 'node:assert/strict'
import { type Failure, keepFailures } from '../../../agent/scheduler/failures.ts'
import { DONE, type Outcome, type Part, WAITING } from '../../../agent/scheduler/part.ts'
import { makeQueue } from '../../../agent/scheduler/queue.ts'
import { Scheduler } from '../../../agent/scheduler/scheduler.ts'
import { until } from '../../support/harness.ts'

const OF_NODE: Failure = { scope: 'node', text: 'the disk is full' }
const OF_PEER: Failure = { scope: 'part', text: 'one peer has no address' }

class Ending extends Error {}

/** Parts whose steps a test writes, and what the scheduler tells of them. */
function fixture(steps: Readonly<Record<string, (why: readonly string[]) => Promise<Outcome> | Outcome>>) {
  const end = new AbortController()
  const failures = keepFailures(() => {})
  const failed: [string, boolean][] = []
  const invalidated: string[] = []
  const stepped: string[] = []
  const parts = Object.entries(steps).map(
    ([name, step]): Part => ({
      name,
      trouble: `Cannot do ${name}`,
      quietMs: 0,
      queue: makeQueue(end.signal),
      invalidate: () => invalidated.push(name),
      step: async (why) => step(why),
    }),
  )
  const scheduler = new Scheduler(parts, {
    failures,
    failed: (text, isNew) => failed.push([text, isNew]),
    stepped: ({ name }) => stepped.push(name),
    isFatal: (cause) => cause instanceof Ending,
  })
  const part = (name: string) => parts.find((one) => one.name === name) as Part
  return {
    scheduler,
    part,
    failures,
    failed,
    invalidated,
    stepped,
    end,
    run: (resyncMs = 0) => scheduler.run(resyncMs, end.signal, () => end.abort()),
  }
}

describe('parts of the agent', () => {
  it('a part that is slow holds back no other, and busy() names it', async () => {
    let free = () => {}
    const slow = new Promise<void>((resolve) => {
      free = resolve
    })
    const { scheduler, part, stepped, end, run } = fixture({ slow: () => slow.then(() => DONE), quick: () => DONE })
    const running = run()
    scheduler.resync('start')
    await until(() => stepped.length === 1)
    part('quick').queue.add('again')
    await until(() => stepped.length === 2)
    assert.deepEqual(stepped, ['quick', 'quick'])
    assert.equal(scheduler.busy()?.name, 'slow')
    free()
    await until(() => stepped.includes('slow'))
    assert.equal(scheduler.busy(), undefined)
    end.abort()
    await running
  })

  it('a step that throws is a failure of the node, told of once, and tried again until it is gone', async () => {
    let tries = 0
    const { scheduler, failures, failed, end, run } = fixture({
      disk: () => {
        if (++tries < 3) throw new Error('it is full')
        return DONE
      },
    })
    const running = run()
    scheduler.resync('start')
    await until(() => tries === 2)
    assert.deepEqual(failures.all(), [{ scope: 'node', text: 'Cannot do disk: it is full' }])
    await until(() => failures.all().length === 0)
    assert.deepEqual(failed, [
      ['Cannot do disk: it is full', true],
      ['Cannot do disk: it is full', false],
    ])
    end.abort()
    await running
  })

  it('what is incomplete is tried again, and its reason is "retry"', async () => {
    const said: (readonly string[])[] = []
    const { scheduler, end, run } = fixture({
      peers: (why) => {
        said.push(why)
        return { isIncomplete: said.length === 1 }
      },
    })
    const running = run()
    scheduler.resync('start')
    await until(() => said.length === 2)
    assert.deepEqual(said, [['start'], ['retry']])
    end.abort()
    await running
  })

  it('all is complete when every other part did its work; a failure of a single peer does not matter, one of the node does', async () => {
    const outcome: Record<string, Outcome> = { uplink: WAITING, peers: DONE, last: WAITING }
    const { scheduler, part, stepped, end, run } = fixture({
      uplink: () => outcome['uplink'] as Outcome,
      peers: () => outcome['peers'] as Outcome,
      last: () => WAITING,
    })
    const running = run()
    const step = async (name: string, next: Outcome) => {
      outcome[name] = next
      const before = stepped.length
      part(name).queue.add('test')
      await until(() => stepped.slice(before).includes(name))
      return scheduler.isComplete(part('last'))
    }
    assert.equal(scheduler.isComplete(part('last')), false)
    assert.equal(await step('peers', DONE), false)
    assert.equal(await step('uplink', WAITING), false)
    assert.equal(await step('uplink', DONE), true)
    assert.equal(await step('peers', { failures: [OF_PEER] }), true)
    assert.equal(await step('peers', { failures: [OF_NODE] }), false)
    end.abort()
    await running
  })

  it('what ends the agent ends every part, once the steps under way are done', async () => {
    const done: string[] = []
    let begun = () => {}
    const beginning = new Promise<void>((resolve) => {
      begun = resolve
    })
    const { scheduler, run } = fixture({
      lease: async () => {
        await beginning
        throw new Ending('the subnet belongs to another')
      },
      peers: async () => {
        begun()
        await Bun.sleep(50)
        done.push('peers')
        return DONE
      },
    })
    const running = run()
    scheduler.resync('start')
    await assert.rejects(running, Ending)
    assert.deepEqual(done, ['peers'])
  })

  it('a resync makes every part invalidate what it knows, again and again', async () => {
    const { invalidated, stepped, end, run } = fixture({ uplink: () => DONE, peers: () => DONE })
    const running = run(20)
    await until(() => invalidated.length >= 4)
    assert.deepEqual(invalidated.slice(0, 4), ['uplink', 'peers', 'uplink', 'peers'])
    await until(() => stepped.length >= 4)
    end.abort()
    await running
  })
})

describe('failures of parts', () => {
  it('are told in the order in which the parts spoke first, and only when they change', () => {
    let changes = 0
    const failures = keepFailures(() => changes++)
    failures.report('uplink', [])
    failures.report('peers', [OF_PEER])
    failures.report('uplink', [OF_NODE])
    failures.report('uplink', [{ ...OF_NODE }])
    assert.deepEqual(failures.all(), [OF_NODE, OF_PEER])
    assert.equal(changes, 2)
  })
})
