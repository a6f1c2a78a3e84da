// lane: vm
// Tests the fast path of a running agent with agent/parts/fast-path.ts.
import { execa } from 'execa'
import { ofAgent, TITLE } from '../../support/fast-path-agent.ts'

describe('the fast path of a running agent with pods on a bridge and vxlan', () => {
  // Policy between pods of one bridge wants it, and the agent does not load it.
  before(() => execa('modprobe', ['br_netfilter']))

  it(TITLE, ofAgent('bridge', 'vxlan'))
})
