// lane: quick
// Tests lib/os/ipsec.ts.
import assert from 'node:assert/strict'
import { hasIpsec } from '../../../lib/os/ipsec.ts'

const HEAD = 'sk               Eth Pid        Groups   Rmem     Wmem     Dump  Locks    Drops    Inode'
const ROUTES = '00000000885ad6d9 0   0          00000000 0        0        0     2        0        4'

describe('hasIpsec()', () => {
  it('is true while the kernel itself has a socket of that protocol; one of a program is none', () => {
    const line = (port: number) =>
      `000000000a95117e 6   ${port}          00000000 0        0        0     2        0        1592`
    assert.equal(hasIpsec([HEAD, ROUTES, line(0), ''].join('\n')), true)
    assert.equal(hasIpsec([HEAD, ROUTES, line(4711), ''].join('\n')), false)
    assert.equal(hasIpsec([HEAD, ROUTES, ''].join('\n')), false)
    assert.equal(hasIpsec(''), false)
  })
})
