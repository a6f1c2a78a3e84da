// lane: quick
// Tests cli/trace/packet.ts.
import assert from 'node:assert/strict'
import { conditionsOf, headersOf, type Probe, packetOf } from '../../../cli/trace/packet.ts'
import type { Ip } from '../../../lib/text/ip.ts'

const [A, B] = ['10.1.0.2' as Ip, '10.1.0.3' as Ip]
const PROBE: Probe = { protocol: 'TCP', source: A, destination: B, port: 80, sourcePort: 40_001, token: 0x1234_5678 }

describe('packetOf() and headersOf()', () => {
  for (const protocol of ['TCP', 'UDP', 'ICMP'] as const)
    for (const [source, destination] of [
      [A, B],
      ['fd01::2', 'fd01::3'],
    ] as [Ip, Ip][])
      it(`${protocol} from ${source}: the headers are read back, and those of another packet are not`, () => {
        const probe: Probe = { ...PROBE, protocol, source, destination, port: protocol === 'ICMP' ? 0 : 80 }
        const packet = packetOf(probe)
        const size = source === A ? 20 : 40
        const network = new DataView(packet.buffer, 0, size)
        const transport = new DataView(packet.buffer, size, Math.min(20, packet.length - size))
        const ends = { source, destination, direction: 'there' }
        const ports = protocol === 'ICMP' ? { port: 0, sourcePort: 0 } : { port: 80, sourcePort: 40_001 }
        assert.deepEqual(headersOf(probe, network, transport), { ...ends, ...ports })
        assert.equal(headersOf({ ...probe, token: 7 }, network, transport), undefined)
        assert.ok(conditionsOf(probe)[0]?.endsWith(`,32 ${0x1234_5678}`))
      })
})
