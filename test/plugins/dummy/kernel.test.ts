// lane: vm
// Tests plugins/dummy.ts.
import { inNamespaces } from '../../support/harness.ts'
import { lanConf } from '../../support/lan.ts'
import { live } from '../../support/pod-life.ts'

describe('dummy', () => {
  it(
    'a life of two pods, on a node that has a link of the same name; CHECK finds that it is down',
    inNamespaces(['node', 'pod', 'other'], async (all) => {
      await all.node.ip('link', 'add', 'eth0', 'type', 'dummy')
      await live({ conf: lanConf('dummy'), kind: 'dummy', router: [], meets: false }, all)
    }),
  )
})
