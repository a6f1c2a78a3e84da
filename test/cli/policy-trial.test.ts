// lane: quick
// Tests cli/policy-trial.ts.
import assert from 'node:assert/strict'
import { packetOf } from '../../cli/policy-trial.ts'
import { parseIp } from '../../lib/text/ip.ts'

const [A, B] = [parseIp('10.1.0.10'), parseIp('10.1.0.11')]

describe('a trial of plumb policy test', () => {
  it('makes first packets with a correct IP header', () => {
    const four = packetOf({ source: A, destination: B, protocol: 'TCP', port: 80 })
    let sum = 0
    for (let i = 0; i < 20; i += 2) sum += new DataView(four.buffer).getUint16(i)
    assert.equal((sum & 0xffff) + (sum >>> 16), 0xffff)
    assert.deepEqual([four.length, four[9], four[33]], [40, 6, 2])
    const six = packetOf({
      source: parseIp('fd00::1'),
      destination: parseIp('fd00::2'),
      protocol: 'SCTP',
      port: 80,
    })
    assert.deepEqual([six.length, six[0], six[5], six[6], six[23], six[39]], [72, 0x60, 32, 132, 1, 2])
  })
})
