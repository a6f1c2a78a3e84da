// lane: peers
// needs: reference
// Tests lib/cni/versions.ts beside the reference plugins.
import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { existsSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { supported } from '../../../lib/cni/spec.ts'
import { decode, encode } from '../../../lib/cni/versions.ts'
import { results, withoutDetails } from '../../support/cni-results.ts'
import fc from '../../support/properties.ts'
import { skip } from '../../support/skip.ts'

/** The newest release of the reference plugins, compared byte for byte where it is installed. */
const peers = '/var/cache/plumb/peers/bin-1.9.1'

describe('versions against the reference plugins', function () {
  this.timeout(60_000)
  before(function () {
    if (!existsSync(peers)) skip(this, `no reference plugins in ${peers}`)
  })
  it('prints any result byte for byte as portmap 1.9.1 passes it on', () => {
    fc.assert(
      fc.property(results, fc.constantFrom(...supported), (result, version) => {
        fc.pre(version > '0.2.9' || (result.ips ?? []).length > 0)
        const given = version === '1.1.0' ? result : withoutDetails(result)
        const text = encode(given, version)
        const conf = { cniVersion: version, name: 'n', type: 'portmap', prevResult: JSON.parse(text) }
        assert.equal(reference('portmap', conf), text)
      }),
      { numRuns: 60 },
    )
  })
  for (const version of supported) {
    it(`prints what host-local 1.9.1 prints in ${version}`, () => {
      const dataDir = mkdtempSync(join(tmpdir(), 'versions-'))
      try {
        const ipam = {
          type: 'host-local',
          dataDir,
          ranges: [[{ subnet: '10.9.0.0/24' }], [{ subnet: 'fd00:9::/64' }]],
          routes: [{ dst: '0.0.0.0/0' }, { dst: 'fd01::/64', gw: 'fd00:9::9', mtu: 1400, scope: 0 }],
        }
        const text = reference('host-local', { cniVersion: version, name: 'n', type: 'bridge', ipam })
        assert.equal(encode(decode(JSON.parse(text), version), version), text)
      } finally {
        rmSync(dataDir, { recursive: true })
      }
    })
  }
})

function reference(name: string, conf: object): string {
  const env = { CNI_COMMAND: 'ADD', CNI_CONTAINERID: 'c', CNI_NETNS: '/absent', CNI_IFNAME: 'eth0', CNI_PATH: peers }
  const { stdout, status } = spawnSync(`${peers}/${name}`, { env, input: JSON.stringify(conf), encoding: 'utf8' })
  assert.equal(status, 0, stdout)
  return stdout
}
