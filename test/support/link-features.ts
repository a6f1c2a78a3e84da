import assert from 'node:assert/strict'
import { featureNames } from '../../lib/os/link-features.ts'
import { inside } from '../../lib/os/netns.ts'
import { ethtool } from '../../lib/os/sockets.ts'
import { parse } from '../../lib/text/values.ts'
import type { Namespace } from './harness.ts'

// linux/ethtool.h: struct ethtool_sfeatures has the command, the number of blocks, and blocks of two words.
const ETHTOOL_SFEATURES = 0x3b

/** Switches a feature of a link, as `ethtool -K` does. */
export function setFeature({ path }: Namespace, link: string, feature: string, isOn: boolean): void {
  inside(parse.netns(path), () => {
    const names = featureNames(link) ?? []
    const at = names.indexOf(feature)
    assert.ok(at >= 0, `${link} knows no feature ${feature}`)
    const [words, bit] = [Math.ceil(names.length / 32), 1 << (at % 32)]
    const request = new Uint32Array(2 + 2 * words)
    request.set([ETHTOOL_SFEATURES, words])
    request.set([bit, isOn ? bit : 0], 2 + 2 * Math.floor(at / 32))
    assert.ok(ethtool(link, request), `cannot switch ${feature} of ${link}`)
  })
}
