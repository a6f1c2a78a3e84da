import { cnitool } from '../../scripts/peers.ts'
import { wireMaster } from '../kinds.ts'
import { everyVerb, onFreshNode } from '../peers/tool.ts'
import { SAMPLES } from '../samples.ts'
import { skip } from '../skip.ts'

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
