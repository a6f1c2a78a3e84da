// lane: netns
// Tests cli/connectivity/sctp.ts with its client and its echo server, over a router.
import assert from 'node:assert/strict'
import { attempt } from '../../../cli/connectivity/attempt.ts'
import { serveInits } from '../../../cli/connectivity/echo-server.ts'
import { answerMessage, initMessage, readAnswer, readInit, SCTP } from '../../../cli/connectivity/sctp.ts'
import { inside } from '../../../lib/os/netns.ts'
import { openRaw } from '../../../lib/os/raw-packets.ts'
import { parseIp } from '../../../lib/text/ip.ts'
import { parse } from '../../../lib/text/values.ts'
import { inNamespaces, type Namespace, until } from '../../support/harness.ts'
import fc from '../../support/properties.ts'
import { rules, type SctpWorld, SIDES, wireSctpWorld } from '../../support/sctp.ts'

const PORT = 7070
const INIT = { sourcePort: 40_000, port: PORT, tag: 0x89ab_cdef }
const CLIENT = parseIp('fd00::7')

const spaceOf = ({ path }: Namespace) => parse.netns(path)
const tryFrom = ({ client }: SctpWorld, family: keyof typeof SIDES, port = PORT) =>
  attempt(spaceOf(client), { protocol: 'SCTP', to: SIDES[family].server, port, bytes: 0 })

/** Wraps a test: echo servers of both families at the server. */
function inWorld(work: (world: SctpWorld) => Promise<void>) {
  return inNamespaces(['client', 'router', 'server'], async (world, test) => {
    test.timeout(60_000)
    await wireSctpWorld(world)
    const servers = Object.values(SIDES).map(({ server }) => serveInits(spaceOf(world.server), server, PORT))
    try {
      await work(world)
    } finally {
      for (const one of servers) one.close()
    }
  })
}

describe('messages of SCTP', () => {
  it('an INIT and its answer are read back, and the answer has the address of the client', () => {
    const init = initMessage(INIT)
    assert.equal(
      Buffer.from(init)
        .toString('hex')
        .replace(/^(.{16}).{8}/, '$1--------'),
      `9c401b9e00000000--------0100001489abcdef0001000000010001${'00000001'}`,
    )
    assert.deepEqual(readInit(init), INIT)
    assert.deepEqual(readAnswer(answerMessage(INIT, CLIENT), INIT), { kind: 'INIT ACK', saw: CLIENT })
    assert.equal(readAnswer(answerMessage(INIT, CLIENT), { ...INIT, tag: 1 }), undefined)
    assert.equal(readAnswer(answerMessage(INIT, CLIENT), { ...INIT, sourcePort: 1 }), undefined)
  })
  it('an ABORT counts with the tag of the client only', () => {
    const abort = (tag: number) => {
      const bytes = Buffer.alloc(16)
      bytes.writeUInt16BE(PORT, 0)
      bytes.writeUInt16BE(INIT.sourcePort, 2)
      bytes.writeUInt32BE(tag, 4)
      bytes.set([6, 0, 0, 4], 12)
      return bytes
    }
    assert.deepEqual(readAnswer(abort(INIT.tag), INIT), { kind: 'ABORT' })
    assert.equal(readAnswer(abort(1), INIT), undefined)
  })
  it('a message with any changed bit, and one that ends early, is no INIT', () => {
    const init = initMessage(INIT)
    for (let bit = 0; bit < init.length * 8; bit++) {
      const other = Uint8Array.from(init)
      other[bit >> 3] = (other[bit >> 3] as number) ^ (1 << (bit & 7))
      assert.equal(readInit(other), undefined, `bit ${bit}`)
    }
    for (let length = 0; length < init.length; length++) assert.equal(readInit(init.subarray(0, length)), undefined)
  })
  it('any bytes are read without an error', () => {
    const answer = answerMessage(INIT, CLIENT)
    const spoilt = fc.tuple(fc.constantFrom(answer, initMessage(INIT)), fc.uint8Array({ maxLength: 60 }), fc.nat(60))
    fc.assert(
      fc.property(spoilt, ([whole, bytes, at]) => {
        for (const one of [bytes, Uint8Array.from([...whole.subarray(0, at), ...bytes])]) {
          readInit(one)
          const found = readAnswer(one, INIT)
          if (found?.saw !== undefined) assert.equal(parseIp(found.saw), found.saw)
        }
      }),
      { numRuns: 2000 },
    )
  })
})

describe('SCTP by raw sockets', () => {
  it(
    'the first message of an association comes back, in both families, through connection tracking',
    inWorld(async (world) => {
      for (const [family, { client }] of Object.entries(SIDES))
        assert.deepEqual(await tryFrom(world, family as keyof typeof SIDES), {
          state: 'arrived',
          says: 'INIT ACK comes back',
          saw: client,
        })
      assert.match((await tryFrom(world, 'IPv4', PORT + 1)).says, /^no answer to the first message .* in 3 s$/)
      const { stdout } = await world.router.exec(['nft', 'list', 'table', 'inet', 'track'])
      assert.match(stdout, /invalid counter packets 0 /)
    }),
  )
  it(
    'a rule that drops SCTP loses it, one of the sender is named, and a changed address is seen',
    inWorld(async (world) => {
      const { client, router } = world
      await rules(
        router,
        'table ip6 no { chain c { type filter hook forward priority 0; iifname "server" meta l4proto sctp drop; }; }\n' +
          'table ip nat { chain c { type nat hook postrouting priority 100; oifname "server" masquerade; }; }\n',
      )
      assert.match((await tryFrom(world, 'IPv6')).says, /^no answer to the first message of an association in 3 s$/)
      assert.deepEqual(
        [await tryFrom(world, 'IPv4')].map(({ state, saw }) => [state, saw]),
        [['arrived', '10.9.2.1']],
      )
      await rules(
        client,
        'table inet no { chain c { type filter hook output priority 0; meta l4proto sctp drop; }; }\n',
      )
      assert.deepEqual(await tryFrom(world, 'IPv4'), {
        state: 'lost',
        says: "a rule of the sender's node refuses packets to 10.9.2.2",
      })
    }),
  )
  it(
    'damaged and foreign messages get no answer, and do not end the echo server',
    inWorld(async (world) => {
      const { client, router } = world
      // Else the router drops what is damaged.
      await router.exec(['nft', 'delete', 'table', 'inet', 'track'])
      await rules(
        client,
        'table inet came { chain c { type filter hook input priority 0; meta l4proto sctp counter; }; }\n',
      )
      const [from, to] = [SIDES.IPv4.client, SIDES.IPv4.server]
      const raw = inside(spaceOf(client), () => openRaw(from, SCTP))
      try {
        const init = initMessage(INIT)
        const bad = [
          new Uint8Array(1),
          ...Array.from({ length: init.length - 1 }, (_, i) => init.subarray(0, i + 1)),
          ...fc.sample(fc.uint8Array({ minLength: 1, maxLength: 1400 }), 300),
          ...fc.sample(fc.tuple(fc.nat(init.length - 1), fc.integer({ min: 1, max: 255 })), 300).map(([at, change]) => {
            const other = Uint8Array.from(init)
            other[at] = (other[at] as number) ^ change
            return other
          }),
          answerMessage(INIT, from),
          initMessage({ ...INIT, port: PORT + 1 }),
        ]
        // The server answers in order. A few at a time, as its socket holds only so much.
        let answers = 0
        for (const [i, one] of bad.entries()) {
          assert.ok(raw.send(to, one))
          if (i % 50 !== 0) continue
          assert.ok(raw.send(to, init))
          const heard = await until(() => raw.hear())
          assert.ok(heard)
          assert.deepEqual(readAnswer(heard.bytes, INIT), { kind: 'INIT ACK', saw: from })
          answers++
        }
        const { stdout } = await client.exec(['nft', 'list', 'table', 'inet', 'came'])
        assert.match(stdout, new RegExp(`counter packets ${answers} `))
      } finally {
        raw.close()
      }
      assert.equal((await tryFrom(world, 'IPv4')).state, 'arrived')
    }),
  )
})
