// lane: quick
// Tests agent/store.
import assert from 'node:assert/strict'
import { loginOf, origins, prefixOf } from '../../../agent/store/etcd/options.ts'
import { openStore } from '../../../agent/store/open.ts'
import { ValueError } from '../../../lib/text/errors.ts'

const endpoints = ['http://127.0.0.1:2379']

describe('the options of the etcd store', () => {
  it('take endpoints with and without a scheme: https where there is a certificate', () => {
    assert.deepEqual(origins({ endpoints: ['http://127.0.0.1:4001', '10.0.0.1:2379/', '[fd00::1]:2379'] }), [
      'http://127.0.0.1:4001',
      'http://10.0.0.1:2379',
      'http://[fd00::1]:2379',
    ])
    assert.deepEqual(origins({ endpoints: ['etcd.example:2379'], caFile: '/ca.pem' }), ['https://etcd.example:2379'])
  })

  for (const [given, message] of [
    [{ endpoints: [] }, 'Cannot reach etcd: no endpoints; want at least one such as http://127.0.0.1:2379'],
    [
      { endpoints: ['ftp://10.0.0.1'] },
      'Cannot read the endpoint "ftp://10.0.0.1" of etcd: want an address such as http://127.0.0.1:2379',
    ],
    [
      { endpoints: ['http://10.0.0.1:2379/v3'] },
      'Cannot read the endpoint "http://10.0.0.1:2379/v3" of etcd: want an address such as http://127.0.0.1:2379',
    ],
    [{ endpoints: [''] }, 'Cannot read the endpoint "" of etcd: want an address such as http://127.0.0.1:2379'],
    [
      { endpoints: ['http://me:hush@10.0.0.1:2379'] },
      'Cannot read an endpoint of etcd: it holds a user name or a password; want those as options of their own',
    ],
    [
      { endpoints, certFile: '/c.pem' },
      'Cannot read the certificate for etcd: its key file is missing; want both or neither',
    ],
    [
      { endpoints, keyFile: '/c.key' },
      'Cannot read the certificate for etcd: the certificate of the key file is missing; want both or neither',
    ],
    [
      { endpoints, caFile: '/nowhere/ca.pem' },
      'Cannot read /nowhere/ca.pem for TLS with etcd: ENOENT; want a PEM file',
    ],
    [{ endpoints, username: 'me' }, 'Cannot log in to etcd as "me": want a password too'],
    [{ endpoints, password: 'hush' }, 'Cannot log in to etcd with a password alone: want a user name too'],
    [{ endpoints, ttlSeconds: 0.5 }, 'Cannot use 0.5 as the time of a lease: want whole seconds, 1 or more'],
    [{ endpoints, prefix: '/' }, 'Cannot use the etcd prefix "/": want a path such as /coreos.com/network'],
  ] as const)
    it(`refuse ${JSON.stringify({ ...given, password: undefined })}, with what would be right and no secret`, async () => {
      await assert.rejects(openStore({ store: 'etcd', ...given }), new ValueError(message))
    })

  it('take a prefix with or without slashes around it, flannel’s unless given', () => {
    for (const [prefix, expected] of [
      [undefined, '/coreos.com/network'],
      ['net/', '/net'],
      ['//a//b/', '/a/b'],
    ] as const)
      assert.equal(prefixOf({ endpoints, ...(prefix !== undefined && { prefix }) }), expected)
  })

  it('refuse a time of leases that is none, also of the file store', async () => {
    for (const ttlSeconds of [0, -1, Number.NaN])
      await assert.rejects(openStore({ store: 'file', ttlSeconds }), ValueError)
  })

  it('take a user, or none', () => {
    assert.deepEqual(loginOf({ endpoints, username: 'me', password: 'hush' }), { name: 'me', password: 'hush' })
    assert.equal(loginOf({ endpoints, username: '', password: '' }), undefined)
  })
})

describe('an etcd that never answers', () => {
  it('is told apart from one without a network configuration', async () => {
    const silent = Bun.listen({ hostname: '127.0.0.1', port: 0, socket: { data() {} } })
    const store = await openStore({ store: 'etcd', endpoints: [`http://127.0.0.1:${silent.port}`] })
    try {
      await assert.rejects(store.config(AbortSignal.timeout(300)), /^StoreError: etcd.* has not answered yet$/)
    } finally {
      await store.close()
      silent.stop(true)
    }
  })
})
