// lane: quick
// Tests agent/page/address.ts.
import assert from 'node:assert/strict'
import { HOME, hashOf, type PageAddress, placeOf } from '../../../agent/page/address.ts'

describe('the address of the page', () => {
  const KEYS = ['overview', 'peers', 'pods', 'events']

  it('says all that the page shows, and an address gives the same page', () => {
    const places: Partial<PageAddress>[] = [
      {},
      { view: 'peers' },
      { view: 'peers', item: 'node-5' },
      {
        view: 'peers',
        q: 'state:silent zone:b rtt>5',
        sort: '-loss',
        group: 'zone',
        selected: 'node-7',
        isPaused: true,
      },
      { view: 'pods', item: 'shop/cart-0', selected: 'abc eth0' },
      { view: 'events', q: '"two words" & more=1 #x %', at: '12:03' },
      { view: 'peers', item: '10.64.1.0/24' },
    ]
    for (const place of places) assert.deepEqual(placeOf(hashOf({ ...HOME, ...place }), KEYS), { ...HOME, ...place })
    assert.equal(
      hashOf({ ...HOME, view: 'peers', q: 'state:silent zone:b', sort: '-loss' }),
      '#/peers?q=state:silent+zone:b&sort=-loss',
    )
    assert.equal(hashOf(HOME), '#/')
  })
  it('reads any address', () => {
    for (const hash of ['', '#', '#/', '#/nowhere', '#/peers/%E0%A4%A', '#/peers?%', '#//', '#/overview/x?q'])
      assert.ok(placeOf(hash, KEYS).view)
    assert.deepEqual(placeOf('#/nowhere/at/all', KEYS), HOME)
    assert.equal(placeOf('#/peers/%E0%A4%A', KEYS).item, '%E0%A4%A')
  })
})
