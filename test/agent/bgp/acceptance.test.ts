// lane: quick
// Tests agent/bgp/acceptance.ts and view.ts.
import assert from 'node:assert/strict'
import { Acceptance } from '../../../agent/bgp/acceptance.ts'
import type { SessionState } from '../../../agent/bgp/birdc.ts'
import { type BgpConfiguration, parseBgp } from '../../../agent/bgp/configuration.ts'
import type { BgpSource } from '../../../agent/bgp/source.ts'
import { SessionsView } from '../../../agent/bgp/view.ts'
import { parseIp } from '../../../lib/text/ip.ts'

const PATH = '/etc/plumb/bgp.yaml'

function source(id: string, text = 'asn: 64512\nconfirmSeconds: 20\n'): BgpSource {
  const conf: BgpConfiguration = parseBgp(PATH, text)
  return { id, text, conf, passwords: new Map() }
}

function session(protocol: string, state: string, reason?: string): SessionState {
  return { protocol, state, since: 0, received: 0, sent: 0, ...(reason !== undefined && { reason }) }
}

const nameOf = (protocol: string) => `router ${protocol}`
const UP = [session('a', 'Established'), session('b', 'Established')]

/** One that has accepted `old`, and tries `new` since 0 with the sessions a and b. */
function trying(): Acceptance {
  const all = new Acceptance(PATH)
  all.read({ id: 'old', source: source('old') })
  all.accept(source('old'))
  all.read({ id: 'new', source: source('new') })
  assert.deepEqual(all.admission(source('new'), 0), { is: 'new', seconds: 20 })
  assert.equal(all.begin(source('new'), ['a', 'b', 'gone'], new Set(['a', 'b', 'c']), 0), 15_000)
  return all
}

describe('which configuration of BGP counts', () => {
  it('the first one counts without a trial', () => {
    const all = new Acceptance(PATH)
    all.read({ id: 'first', source: source('first') })
    assert.equal(all.chosen?.id, 'first')
    assert.deepEqual(all.admission(source('first'), 0), { is: 'counted' })
    assert.equal(all.applied(source('first')), true)
    assert.equal(all.applied(source('first')), false)
  })

  it('another one counts when each session that stays is back, and no session more is asked for', () => {
    const all = trying()
    assert.equal(all.isDue(999), false)
    assert.deepEqual(all.judge(UP, 999, nameOf), {}, 'BIRD may still be about to end them')
    assert.deepEqual(all.judge([UP[0] as SessionState, session('b', 'Active')], 1000, nameOf), {})
    assert.equal(all.judge(UP, 2000, nameOf).passed?.id, 'new')
    assert.equal(all.accept(source('new')), true)
    assert.deepEqual([all.chosen?.id, all.isTrying, all.problems], ['new', false, []])
  })

  it('a session that is not back in time takes it back, with the reason, until the file is another one', () => {
    const all = trying()
    const states = [UP[0] as SessionState, session('b', 'Active', 'Connection refused')]
    assert.deepEqual(all.judge(states, 15_000, nameOf), {})
    assert.equal(all.chosen?.id, 'old')
    assert.deepEqual(all.problems, [
      `The change of ${PATH} is taken back, as not all sessions were back within 20 s: router b is Active, Connection refused; correct the file`,
    ])
    all.applied(source('old'))
    assert.equal(all.problems.length, 1, 'other leases do not make it right')
    all.read({ id: 'third', source: source('third') })
    assert.deepEqual([all.chosen?.id, all.problems], ['third', []])
  })

  it('sessions that are back after the time are those of the configuration before', () => {
    const all = trying()
    assert.deepEqual(all.judge(UP, 15_001, nameOf), {})
    assert.match(all.problems[0] ?? '', /they came back too late/)
    assert.equal(all.chosen?.id, 'old')
  })

  it('the old text in the file ends the trial at once', () => {
    const all = trying()
    all.read({ id: 'old', source: source('old') })
    assert.deepEqual([all.isTrying, all.chosen?.id, all.problems], [false, 'old', []])
    assert.deepEqual(all.admission(source('old'), 500), { is: 'counted' })
  })

  it('a file that cannot be read changes nothing within a trial, and is named', () => {
    const all = trying()
    all.read({ id: 'nonsense', why: 'line 3 is wrong' })
    assert.equal(all.chosen?.id, 'new')
    assert.deepEqual(all.problems, ['line 3 is wrong; BGP goes on as before'])
  })

  it('leases that change within a trial go on with it, for the time that is left and BIRD’s own limit', () => {
    const all = trying()
    assert.deepEqual(all.admission(source('new'), 4500), { is: 'continued', seconds: 16 })
    assert.deepEqual(all.admission(source('new'), 40_000), { is: 'continued', seconds: 5 })
  })

  it('a third text within a trial still expects the sessions of before the second', () => {
    const all = trying()
    all.read({ id: 'third', source: source('third') })
    all.begin(source('third'), [], new Set(['a', 'b']), 3000)
    assert.deepEqual(all.judge([], 18_000, nameOf), {})
    assert.match(all.problems[0] ?? '', /router a is Unknown, router b is Unknown/)
  })

  it('a short limit leaves a quarter of it to BIRD', () => {
    const all = new Acceptance(PATH)
    all.accept(source('old'))
    const short = source('short', 'asn: 64512\nconfirmSeconds: 8\n')
    assert.equal(all.begin(short, [], new Set(), 0), 6000)
  })

  it('what BIRD refuses is named, and the one before goes on', () => {
    const all = trying()
    all.reject(source('new'), 'BIRD refuses the configuration: line 7')
    assert.deepEqual([all.chosen?.id, all.isTrying], ['old', false])
    assert.deepEqual(all.problems, [`The change of ${PATH} does not count: BIRD refuses the configuration: line 7`])
  })

  for (const [what, isUp, at] of [
    ['all its sessions are up', true, 1],
    ['its time is over', false, 15_000],
  ] as const)
    it(`a BIRD that was taken over keeps what had counted until ${what}`, () => {
      const all = new Acceptance(PATH)
      all.takeOver(source('kept'), 0)
      all.read({ id: 'new', source: source('new') })
      all.settle(false, 14_999)
      assert.deepEqual([all.chosen?.id, all.isSettling], ['kept', true])
      all.settle(isUp, at)
      assert.deepEqual([all.chosen?.id, all.isSettling], ['new', false])
    })

  it('BIRD writes the routes to nodes when each configuration that it may have says so', () => {
    const bird = (id: string) => source(id, 'asn: 64512\nprograms: bird\n')
    const all = new Acceptance(PATH)
    assert.equal(all.isByBird, false)
    all.read({ id: 'new', source: bird('new') })
    assert.equal(all.isByBird, true)
    all.accept(source('old'))
    assert.equal(all.isByBird, false, 'the one that counts leaves them to the agent')
    all.accept(bird('new'))
    assert.equal(all.isByBird, true)
  })
})

describe('what people see of the sessions of BGP', () => {
  const conf = (...names: string[]) => ({
    sessions: names.map((name, i) => {
      return { protocol: name, kind: 'peer' as const, name, address: parseIp(`192.0.2.${i + 1}`), asn: 64_512 }
    }),
  })
  const states = (view: SessionsView) => view.sessions.map(({ name, state }) => `${name} ${state}`)

  it('sessions that stay keep their state when others come, and a BIRD that started again has none', () => {
    const view = new SessionsView()
    view.configured(conf('a', 'b'), 7)
    assert.deepEqual(states(view), ['a Unknown', 'b Unknown'])
    view.seen(conf('a', 'b'), UP, 0)
    view.configured(conf('a', 'b', 'c'), 7)
    assert.deepEqual(states(view), ['a Established', 'b Established', 'c Unknown'])
    view.configured(conf('a', 'b', 'c'), 8)
    assert.deepEqual(states(view), ['a Unknown', 'b Unknown', 'c Unknown'])
  })

  it('a session is named after 15 s without it, with the reason that BIRD has forgotten by then', () => {
    const view = new SessionsView()
    view.withReasons([session('a', 'Idle', 'Hold timer expired')])
    const now = view.withReasons([session('a', 'Connect')])
    assert.equal(view.seen(conf('a'), now, 0), undefined)
    assert.equal(view.seen(conf('a'), now, 14_999), undefined)
    const text = 'BGP sessions are away: a (192.0.2.1) is Connect, Hold timer expired (see: plumb bgp)'
    assert.equal(view.seen(conf('a'), now, 15_000), text)
    assert.equal(view.seen(conf('a'), view.withReasons(UP), 15_001), undefined)
    assert.equal(view.seen(conf('a'), [session('a', 'Connect')], 16_000), undefined, 'the time begins again')
  })
})
