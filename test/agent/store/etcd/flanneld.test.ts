// lane: peers
// Tests agent/store, beside flanneld.
import assert from 'node:assert/strict'
import { mkdtempSync, readFileSync } from 'node:fs'
import { decodeKey, decodeLease, encodeKey, encodeValue, type Lease } from '../../../../agent/lease/lease.ts'
import { parseNetworkConf } from '../../../../agent/lease/network-configuration.ts'
import { openStore } from '../../../../agent/store/open.ts'
import type { SubnetStore } from '../../../../agent/store/store.ts'
import { flanneld } from '../../../../scripts/peers.ts'
import { type Cluster, type Kept, startEtcd } from '../../../support/etcd.ts'
import { inNamespaces, type Namespace, until } from '../../../support/harness.ts'
import { skip } from '../../../support/skip.ts'
import { draft, dualDraft, signal, watch } from '../../../support/suites/leases.ts'

const NETWORKS = {
  IPv4: '{"Network":"10.5.0.0/16","EnableNFTables":true,"Backend":{"Type":"vxlan"}}',
  'dual stack':
    '{"Network":"10.5.0.0/16","EnableIPv6":true,"IPv6Network":"fd66::/48","EnableNFTables":true,"Backend":{"Type":"vxlan"}}',
} as const

describe('the etcd store beside a real flanneld', () => {
  let etcd: Cluster
  let serial = 0
  const ending: (() => Promise<unknown> | unknown)[] = []
  before(async function () {
    if (!flanneld())
      skip(
        this,
        'there is no flanneld: build it with `node_modules/.bin/bun scripts/peers.ts flanneld`, which wants Go 1.24 and takes minutes',
      )
    etcd = await startEtcd()
  })
  after(() => etcd?.stop())
  afterEach(async () => {
    for (const end of ending.splice(0).reverse()) await end()
  })

  async function network(
    conf: string,
  ): Promise<{ prefix: string; leases(): Promise<Kept[]>; store(): Promise<SubnetStore> }> {
    const prefix = `/net${++serial}`
    await etcd.put(`${prefix}/config`, conf)
    return {
      prefix,
      leases: () => etcd.list(`${prefix}/subnets/`),
      async store() {
        const store = await openStore({ store: 'etcd', endpoints: etcd.endpoints, prefix })
        ending.push(() => store.close())
        return store
      },
    }
  }

  /** Starts it, and gives what stops it once it has written subnet.env. */
  async function run(
    node: Namespace,
    prefix: string,
  ): Promise<{ readonly stop: () => Promise<void>; readonly env: string; readonly log: () => string }> {
    const dir = mkdtempSync('/run/flannel-')
    const args = [
      `--etcd-endpoints=${etcd.endpoints}`,
      `--etcd-prefix=${prefix}`,
      '--iface=eth0',
      `--subnet-file=${dir}/subnet.env`,
      '--iptables-forward-rules=false',
    ]
    const child = Bun.spawn(['nsenter', `--net=${node.path}`, '--', flanneld()?.path ?? '', ...args], {
      stdin: 'ignore',
      stdout: 'ignore',
      stderr: Bun.file(`${dir}/log`),
    })
    const stop = async () => {
      child.kill('SIGKILL')
      await child.exited
    }
    ending.push(stop)
    const env = await until(() => readFileSync(`${dir}/subnet.env`, 'utf8'), 15_000).catch(() =>
      assert.fail(readFileSync(`${dir}/log`, 'utf8')),
    )
    return { stop, env, log: () => readFileSync(`${dir}/log`, 'utf8') }
  }

  for (const [what, conf] of Object.entries(NETWORKS))
    it(
      `reads its lease, takes it over, and gives it back to it, byte for byte: ${what}`,
      inNamespaces(['node'], async ({ node }) => {
        const { prefix, leases, store } = await network(conf)
        await etcd.attach(node, 100 + serial)
        const first = await run(node, prefix)
        const [theirs = assert.fail('flanneld has no lease')] = await leases()
        const key = theirs.key.slice(`${prefix}/subnets/`.length)
        const read = decodeLease(decodeKey(key), theirs.value)
        assert.equal(encodeKey(read.subnets), key)
        assert.equal(encodeValue(read), theirs.value)
        await first.stop()
        // The same node, with plumb on it: the lease's addresses are its own.
        const lease = await (await store()).claim({ ...read, node: 'a' }, parseNetworkConf(conf), signal)
        assert.deepEqual(lease.subnets, read.subnets)
        const [ours] = await leases()
        assert.deepEqual([ours?.key, ours?.value, ours?.create], [theirs.key, theirs.value, theirs.create])
        assert.notEqual(ours?.lease, theirs.lease)
        // And back.
        const second = await run(node, prefix)
        assert.equal(second.env, first.env)
        assert.deepEqual(
          (await leases()).map((one) => one.key),
          [theirs.key],
        )
        await second.stop()
        assert.deepEqual(
          (await (await store()).claim({ ...read, node: 'a' }, parseNetworkConf(conf), signal)).subnets,
          read.subnets,
        )
      }),
    )

  for (const [what, conf] of Object.entries(NETWORKS))
    it(
      `is followed by it: it routes to a subnet that plumb claims, and no more when that is released; it complains of nothing: ${what}`,
      inNamespaces(['node'], async ({ node }) => {
        const { prefix, leases, store } = await network(conf)
        await etcd.attach(node, 100 + serial)
        const flannel = await run(node, prefix)
        const plumb = await store()
        const seen = watch(plumb)
        ending.push(seen.end)
        const theirs = (await seen.until((last) => last.leases.length === 1)).leases[0] as Lease
        assert.equal(theirs.node, undefined)
        const ours = await plumb.claim(
          what === 'IPv4' ? draft('b', 3) : dualDraft('b', 3),
          parseNetworkConf(conf),
          signal,
        )
        assert.equal((await leases()).length, 2)
        const dsts = async () =>
          [...(await node.json('-4', 'route')), ...(await node.json('-6', 'route'))]
            .filter(({ dev }) => /^flannel/.test(dev))
            .map(({ dst }) => dst)
        const wanted = Object.values(ours.subnets)
        await until(async () => {
          const have = await dsts()
          return wanted.every((one) => have.includes(one))
        })
        assert.deepEqual((await seen.until((last) => last.leases.length === 2)).leases.map((one) => one.node).sort(), [
          'b',
          undefined,
        ])
        await plumb.release('b')
        await until(async () => {
          const have = await dsts()
          return wanted.every((one) => !have.includes(one))
        })
        assert.doesNotMatch(flannel.log(), /[Ii]gnoring|not a subnet|error parsing|failed to parse/)
      }),
    )
})
