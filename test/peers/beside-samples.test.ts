import assert from 'node:assert/strict'
import { hasPlugin } from '../beside/lanes.ts'
import { samples, scenesOf, typesOf } from '../beside/samples.ts'
import { beside, inLane } from '../beside/suite.ts'
import { skip } from '../skip.ts'

describe('beside the reference: conf/', () => {
  it('has samples', () => {
    assert.ok(samples().length > 0)
  })
})

for (const newer of [true, false])
  inLane('every sample in conf/', newer, (lane) => {
    for (const sample of samples()) {
      const lacking = typesOf(sample).filter((type) => !hasPlugin(lane, type))
      if (lacking.length === 0) beside(scenesOf(sample, lane), lane)
      else
        it(`conf/${sample.file}: as ${lane.version}`, function () {
          skip(this, `the reference ${lane.version} has no ${lacking.join(', ')}`)
        })
    }
  })
