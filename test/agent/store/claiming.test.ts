// lane: quick
// Tests agent/store.
import assert from 'node:assert/strict'
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { encodeValue } from '../../../agent/lease/lease.ts'
import { parseNetworkConf } from '../../../agent/lease/network-configuration.ts'
import { makeQueue } from '../../../agent/scheduler/queue.ts'
import { Claiming } from '../../../agent/store/claiming.ts'
import { openStore } from '../../../agent/store/open.ts'
import type { SubnetStore } from '../../../agent/store/store.ts'
import { writeAtomic } from '../../../lib/os/files.ts'
import { until } from '../../support/harness.ts'
import { draft, SMALL } from '../../support/suites/leases.ts'

/** A node that claims its lease in a folder as the agent's loop does. */
interface Claimant {
  readonly claiming: Claiming
  /** The last number of the address that is announced from now on. */
  announce(last: number): void
  /** How often the lease was claimed. */
  claims(): number
  /** The lease's file, and when it ends. */
  path(): string | undefined
  expires(): number | undefined
}

const now = Date.now

describe('Claiming', () => {
  const ends: (() => Promise<void>)[] = []
  afterEach(async () => {
    Date.now = now
    for (const end of ends.splice(0)) await end()
  })

  async function claimant(marginMs: number, ttlSeconds?: number): Promise<Claimant> {
    const dir = mkdtempSync(join(tmpdir(), 'plumb-claiming-'))
    const [ended, conf] = [new AbortController(), parseNetworkConf(SMALL)]
    const store = await openStore({
      store: 'file',
      dir,
      config: SMALL,
      pollMs: 20,
      ...(ttlSeconds !== undefined && { ttlSeconds }),
    })
    let [count, last] = [0, 2]
    const counted: SubnetStore = {
      config: (signal) => store.config(signal),
      leases: (signal) => store.leases(signal),
      release: (node) => store.release(node),
      state: () => store.state(),
      close: () => store.close(),
      claim: async (...wanted) => {
        count++
        return store.claim(...wanted)
      },
    }
    const queue = makeQueue(ended.signal)
    const claiming = new Claiming(counted, conf, queue, marginMs, () => {})
    const feed = (async () => {
      for await (const { leases } of store.leases(ended.signal)) {
        claiming.take(leases)
        queue.add('leases')
      }
    })()
    const loop = (async () => {
      for (queue.add('start'); !ended.signal.aborted; await queue.next(0)) claiming.want(draft('a', last), undefined)
    })()
    ends.push(async () => {
      ended.abort()
      await Promise.all([feed, loop])
      await store.close()
      rmSync(dir, { recursive: true })
    })
    const record = (): { expires?: number } | undefined => {
      try {
        return JSON.parse(readFileSync(join(dir, 'nodes/a'), 'utf8'))
      } catch {
        return undefined
      }
    }
    return {
      claiming,
      announce(to) {
        last = to
        queue.add('uplink')
      },
      claims: () => count,
      path() {
        const [key] = record() ? readdirSync(join(dir, 'subnets')).filter((name) => !name.startsWith('.')) : []
        return key === undefined ? undefined : join(dir, 'subnets', key)
      },
      expires: () => record()?.expires,
    }
  }

  it('publishes what another overwrites once at once, then ever more rarely, and tells of it', async () => {
    const { claiming, claims, path } = await claimant(0)
    const file = (await until(() => (claiming.lease ? path() : undefined))) as string
    const theirs = encodeValue(draft('a', 66))
    const end = performance.now() + 3000
    for (; performance.now() < end; await Bun.sleep(2))
      if (readFileSync(file, 'utf8') !== theirs) writeAtomic(file, theirs, { mode: 0o644, durable: false })
    // At 0, 0.5, 1.5 and 3.5 s, after the first claim.
    assert.ok(claims() >= 3 && claims() <= 5, `${claims()} claims`)
    assert.match(
      claiming.conflict ?? '',
      /^The lease of 10\.5\.\d\.0\/24 is overwritten by the node at 172\.30\.0\.66: does it have this node's name, too\?, [2-4] times so far$/,
    )
    await until(() => readFileSync(file, 'utf8') === encodeValue(draft('a', 2)), 10_000)
  })

  it('renews in time after a second claim, though the wake of the first one comes too early', async () => {
    const { announce, claims, expires } = await claimant(2500, 4)
    await until(() => claims() === 1 && expires() !== undefined)
    announce(3)
    await until(() => claims() === 2)
    const second = expires() ?? 0
    await until(() => claims() > 2, 10_000)
    assert.ok(Date.now() < second, `${Date.now() - second} ms late`)
  })

  it('renews in time when the clock is set back', async () => {
    const { claiming, claims } = await claimant(2500, 4)
    await until(() => claiming.lease !== undefined)
    Date.now = () => now() - 3_600_000
    await until(() => claims() > 1, 10_000)
  })

  it('a claim that fails for a node without an earlier subnet is told of without empty brackets', async () => {
    const [dir, ended, told] = [mkdtempSync(join(tmpdir(), 'plumb-claiming-')), new AbortController(), [] as string[]]
    const [store, conf] = [await openStore({ store: 'file', dir, config: SMALL }), parseNetworkConf(SMALL)]
    ends.push(async () => {
      ended.abort()
      await store.close()
      rmSync(dir, { recursive: true })
    })
    // The network has three subnets.
    for (const [i, node] of ['b', 'c', 'd'].entries()) await store.claim(draft(node, i + 3), conf, ended.signal)
    new Claiming(store, conf, makeQueue(ended.signal), 0, (text) => void told.push(text)).want(draft('a', 2), undefined)
    await until(() => told.length > 0)
    assert.match(told[0] as string, /^Cannot claim a subnet for node "a": .* taken/)
  })
})
