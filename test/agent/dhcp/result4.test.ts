// lane: quick
// Tests agent/dhcp/result4.ts.
import assert from 'node:assert/strict'
import { result4 } from '../../../agent/dhcp/result4.ts'
import type { Cidr } from '../../../lib/text/ip.ts'

describe('DHCPv4 options in results', () => {
  const given = (options: Readonly<Record<number, readonly number[]>>) =>
    result4({
      address: '10.7.0.5/24' as Cidr,
      options: Object.fromEntries(
        Object.entries(options).map(([code, bytes]) => [code, Buffer.from(bytes).toString('base64')]),
      ),
    })

  it('result4() reads classless routes of every length, and ends at what is cut short or longer than an address', () => {
    const { routes } = given({
      121: [0, 10, 7, 0, 1, 32, 192, 0, 2, 9, 0, 0, 0, 0, 17, 172, 16, 255, 10, 7, 0, 2, 33, 1],
      3: [10, 7, 0, 9],
      33: [192, 168, 5, 0, 10, 7, 0, 2],
    })
    assert.deepEqual(routes, [
      { dst: '0.0.0.0/0', gw: '10.7.0.1' },
      { dst: '192.0.2.9/32', scope: 253 },
      { dst: '172.16.128.0/17', gw: '10.7.0.2' },
    ])
  })
  it('result4() leaves out an MTU below 68, a domain that is no name, and half an address', () => {
    assert.deepEqual(given({ 3: [10, 7, 0, 1, 9], 26: [0, 67], 15: [...Buffer.from('a b\n')], 6: [10, 7] }), {
      ips: [{ address: '10.7.0.5/24', gateway: '10.7.0.1' }],
      routes: [{ dst: '0.0.0.0/0', gw: '10.7.0.1' }],
    })
  })
})
