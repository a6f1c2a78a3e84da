// lane: quick
// Tests cli/top/node-view.ts.
import assert from 'node:assert/strict'
import { known } from '../../../agent/state/messages.ts'
import { columnsOf, rowOf } from '../../../agent/state/rows.ts'
import { draw } from '../../../cli/top/draw.ts'
import { watchedNode } from '../../../cli/top/node-view.ts'
import { initialState } from '../../../cli/top/state.ts'
import { cellText } from '../../../cli/top/table.ts'
import { patient } from '../../support/patience.ts'
import { peers, scripted } from '../../support/scripted.ts'

const NOW = Date.UTC(2026, 10, 1, 12, 0, 0)

describe('a node in plumb top', () => {
  it('with 3, 100, 1,000 and 5,000 peers the two bad ones are in the sentence and in the first rows', () => {
    for (const count of [3, 100, 1000, 5000]) {
      const status = scripted({ peers: peers(count), degraded: ['no answer over the overlay from node-2 and node-3'] })
      const rows = status.status().peers.map((peer, i) => {
        const isBad = i === 1 || i === 2
        return rowOf(i + 1, isBad ? { ...peer, probe: { state: 'silent', sent: 10, lost: 10 } } : peer, undefined)
      })
      const { peers: _, repairs: __, ...base } = status.status()
      const state = known({ at: NOW, status: base, peers: columnsOf(rows), happenings: [] })
      const begun = performance.now()
      const watched = watchedNode({ state }, NOW)
      const screen = draw(initialState('nodes'), watched, { columns: 120, rows: 24 }, false)
      const ms = performance.now() - begun
      assert.match(watched.sentence, /from node-2 and node-3; \d+ peers, 2 with a problem$/)
      const shown = watched.tables.nodes.lines.slice(0, 3).map(({ cells }) => cellText(cells[0]))
      assert.deepEqual(shown, ['node-0', 'node-2', 'node-3'])
      assert.ok(screen.some((text) => text.includes('✕ node-2')))
      assert.ok(ms < patient(2000), `${ms} ms`)
    }
  })
})
