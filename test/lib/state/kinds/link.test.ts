// lane: quick
// Tests lib/state.
import assert from 'node:assert/strict'
import { failures } from '../../../../lib/os/iproute2.ts'
import { type Link, link } from '../../../../lib/state/kinds/link.ts'

describe('link.drop()', () => {
  const [line] = link.drop({ kind: 'link', ns: 'host', name: 'veth1', type: 'veth', up: true } as unknown as Link)
  it('is content with a link that is gone, also one that goes with its namespace between the look of ip and its deletion', () => {
    // What iproute2 6.1 says of either.
    for (const said of ['Cannot find device "veth1"', 'RTNETLINK answers: No such device'])
      assert.match(failures(`${said}\nCommand failed -:1\n`).byLine.get(1) as string, line?.unless as RegExp)
  })
  it('is not content with anything else', () => {
    assert.doesNotMatch('Operation not permitted', line?.unless as RegExp)
  })
})
