// lane: quick
// Tests cli/trace/far-lines.ts.
import assert from 'node:assert/strict'
import { question, read } from '../../../cli/trace/far-lines.ts'
import type { Probe } from '../../../cli/trace/packet.ts'
import type { Ip } from '../../../lib/text/ip.ts'

const [A, B] = ['10.1.0.2' as Ip, '10.1.0.3' as Ip]
const PROBE: Probe = { protocol: 'TCP', source: A, destination: B, port: 80, sourcePort: 40_001, token: 0x1234_5678 }

describe('the lines between the halves of a trace', () => {
  it('are read by their shapes: a value that nft would read as more than a value is refused', () => {
    const asked = { probe: PROBE, destinations: [B] }
    assert.deepEqual(read(question, JSON.stringify(asked)), asked)
    for (const wrong of [
      { ...asked, probe: { ...PROBE, token: '1 accept; } }' } },
      { ...asked, probe: { ...PROBE, source: '10.1.0.2; flush ruleset' } },
      { ...asked, probe: { ...PROBE, port: 65_536 } },
      { ...asked, destinations: ['/etc/passwd'] },
      { destinations: [] },
    ])
      assert.throws(() => read(question, JSON.stringify(wrong)), /want a line of the other half of a trace/)
    assert.throws(() => read(question, 'Welcome to n2'), /Cannot read "Welcome to n2"/)
  })
})
