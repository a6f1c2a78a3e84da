// lane: vm
// needs: reference
// Tests plugins, called by cnitool.
import { cnitool } from '../../scripts/peers.ts'
import { everyVerb, onFreshNode } from '../support/cnitool.ts'
import { wireMaster } from '../support/kinds.ts'
import { SAMPLES } from '../support/samples.ts'
import { skip } from '../support/skip.ts'

const KINDS = ['dummy', 'ipvlan', 'vlan', 'vrf']

describe('cnitool, over the samples whose links a kernel may lack', () => {
  before(function () {
    if (!cnitool()) skip(this, 'no cnitool could be built (see scripts/peers.ts)')
  })

  for (const sample of SAMPLES.filter(({ plugins }) => plugins.some(({ type }) => KINDS.includes(type))))
    it(
      `conf/${sample.file}: every verb; what removes the pod leaves nothing`,
      onFreshNode(['node', 'pod'], async ({ node, pod }) => {
        await wireMaster(node, sample.plugins)
        await everyVerb(sample, node, pod)
      }),
    )
})
