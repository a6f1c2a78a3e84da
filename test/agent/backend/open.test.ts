// lane: quick
// Tests agent/backend/open.ts: the keys of net-conf.json that nothing reads.
import assert from 'node:assert/strict'
import { unreadKeys } from '../../../agent/backend/open.ts'
import { BACKENDS } from '../../../agent/backend/types/index.ts'
import { parseNetworkConf } from '../../../agent/lease/network-configuration.ts'

interface Keys {
  readonly entries: { readonly Backend: { readonly entries: object } }
}

describe('keys of a network configuration', () => {
  for (const [type, open] of Object.entries(BACKENDS)) {
    const unread = async (options: object) => {
      const backend = await open()
      const conf = parseNetworkConf(JSON.stringify({ Network: '10.244.0.0/16', Backend: { Type: type, ...options } }))
      return {
        unread: unreadKeys(conf, backend),
        known: Object.keys((backend.shape as unknown as Keys).entries.Backend.entries),
      }
    }

    it(`${type}: a key with a letter too many is named with the nearest key, and the key itself is not`, async () => {
      const { known } = await unread({})
      for (const key of known) {
        assert.deepEqual((await unread({ [key]: null, [key.toLowerCase()]: null })).unread, [], key)
        assert.deepEqual((await unread({ [`${key}x`]: 1 })).unread, [
          `unknown key "Backend.${key}x"${key.length > 1 ? `, did you mean "${key}"?` : ''}`,
        ])
      }
      assert.deepEqual((await unread({ Quux: { Deep: 1 } })).unread, ['unknown key "Backend.Quux"'])
    })
  }

  it('unknown keys of the top are named too', async () => {
    const conf = parseNetworkConf(
      JSON.stringify({ Network: '10.244.0.0/16', SubnetLne: 24, Backend: { Type: 'alloc' } }),
    )
    const alloc = await (BACKENDS['alloc'] as NonNullable<(typeof BACKENDS)[string]>)()
    assert.deepEqual(unreadKeys(conf, alloc), ['unknown key "SubnetLne", did you mean "SubnetLen"?'])
  })
})
