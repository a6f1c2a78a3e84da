// lane: quick
// Tests agent/bgp/birdc.ts.
import assert from 'node:assert/strict'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { askBird, makeReader, type ReplyLine, sessionsOf } from '../../../agent/bgp/birdc.ts'
import { until } from '../../support/harness.ts'
import fc from '../../support/properties.ts'

type Asker = { write(text: string): number; end(): void }
const BLANKS = ' '.repeat(65_536)
function flood(asker: Asker): void {
  while (asker.write(BLANKS) === BLANKS.length);
}

const ANSWER = `0001 BIRD 2.0.12 ready.
2002-Name       Proto      Table      State  Since         Info
1002-device1    Device     ---        up     2026-11-28 01:02:03  
1006-
1002-own_v4     Static     master4    up     2026-11-28 01:02:03  
1006-  Channel ipv4
     State:          UP
     Routes:         1 imported, 0 exported, 1 preferred
1002-node_v4_172_30_0_1 BGP        ---        up     2026-11-28 01:02:05  Established   
1006-  BGP state:          Established
     Neighbor address: 172.30.0.1
   Channel ipv4
     State:          UP
     Routes:         3 imported, 2 filtered, 1 exported, 0 preferred
1002-peer_v4_172_30_0_254 BGP        ---        start  2026-11-28 01:02:04  Active        Socket: Connection refused
1006-  BGP state:          Active
     Last error:       Socket: Connection refused
1002-peer_v4_172_30_0_253 BGP        ---        start  2026-11-28 01:02:04  Idle          
1006-  BGP state:          Idle
     Last error:       Received: Bad peer AS
1006-
0000 
`

describe('the answers of BIRD', () => {
  const [, lines] = makeReader()(ANSWER) as [unknown, readonly ReplyLine[]]
  const at = (time: string) => Date.parse(`2026-11-28T${time}Z`)

  it('show protocols all gives the sessions with state, time, prefixes and reason', () => {
    assert.deepEqual(sessionsOf(lines), [
      { protocol: 'node_v4_172_30_0_1', state: 'Established', since: at('01:02:05'), received: 3, sent: 1 },
      {
        protocol: 'peer_v4_172_30_0_254',
        state: 'Active',
        since: at('01:02:04'),
        received: 0,
        sent: 0,
        reason: 'Socket: Connection refused',
      },
      {
        protocol: 'peer_v4_172_30_0_253',
        state: 'Idle',
        since: at('01:02:04'),
        received: 0,
        sent: 0,
        reason: 'Received: Bad peer AS',
      },
    ])
  })

  it('in pieces of any size it is the same', () => {
    fc.assert(
      fc.property(fc.array(fc.integer({ min: 1, max: 90 }), { minLength: 1 }), (sizes) => {
        const reader = makeReader()
        const found: (readonly ReplyLine[])[] = []
        for (let [from, i] = [0, 0]; from < ANSWER.length; i++) {
          const size = sizes[i % sizes.length] as number
          found.push(...reader(ANSWER.slice(from, from + size)))
          from += size
        }
        assert.deepEqual(found[1], lines)
      }),
    )
  })

  const behaviours: readonly (readonly [string, (asker: Asker) => void, RegExp])[] = [
    ['says nothing', () => {}, /^BIRD has not answered for 0\.3 s$/],
    ['closes', (asker) => asker.end(), /^BIRD has closed the connection$/],
    ['says nonsense', (asker) => void asker.write('220 mail ready\n'), /^BIRD answers "220 mail ready", which is no/],
    [
      'never ends its answer',
      (asker) => void asker.write('0001 ready.\n1002-row'),
      /^BIRD answers more than 16777216 bytes$/,
    ],
    ['refuses', (asker) => void asker.write('0001 ready.\n8002 /x:1:1 syntax error\n'), /^\/x:1:1 syntax error$/],
  ]
  for (const [what, answer, says] of behaviours)
    it(`a socket that ${what} is an error with a sentence, and the connection is closed`, async () => {
      const dir = mkdtempSync(join(tmpdir(), 'birdc-'))
      const socket = join(dir, 'ctl')
      let isClosed = false
      const listener = Bun.listen({
        unix: socket,
        socket: {
          open: answer,
          data(asker) {
            if (what.startsWith('never')) flood(asker)
          },
          drain(asker) {
            if (what.startsWith('never')) flood(asker)
          },
          close() {
            isClosed = true
          },
        },
      })
      try {
        await assert.rejects(askBird(socket, 'show status', what === 'says nothing' ? 300 : 10_000), { message: says })
        await until(() => isClosed)
      } finally {
        listener.stop(true)
        rmSync(dir, { recursive: true })
      }
    })

  it('a socket that is not there is an error that names it', () =>
    assert.rejects(askBird('/nowhere/bird.ctl', 'show status'), {
      message: /^BIRD does not answer at \/nowhere\/bird\.ctl: /,
    }))

  it('nonsense is refused or read, never more', () => {
    const check = (text: string) => {
      try {
        for (const answer of makeReader()(text)) sessionsOf(answer)
      } catch (cause) {
        assert.match((cause as Error).message, /^BIRD answers .*, which is no answer of BIRD 2$/)
      }
    }
    fc.assert(fc.property(fc.string(), check))
    const piece = fc.constantFrom(
      '1002-',
      '1006-',
      '0000 ',
      ' ',
      '+',
      'BGP',
      '2026-11-28 01:02:03',
      '\n',
      'Routes: 1 imported, 2 exported',
      'x',
    )
    fc.assert(fc.property(fc.array(piece), (all) => check(all.join(''))))
  })
})
