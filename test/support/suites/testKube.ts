import assert from 'node:assert/strict'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Lease } from '../../../agent/lease/lease.ts'
import { parseNetworkConf } from '../../../agent/lease/network-configuration.ts'
import { type Options, open } from '../../../agent/store/kube/index.ts'
import type { Draft, Snapshot, SubnetStore } from '../../../agent/store/store.ts'
import { parseIp } from '../../../lib/text/ip.ts'
import { until } from '../harness.ts'
import type { Raw } from '../kube-server.ts'
import { patient } from '../patience.ts'

/** A cluster as its administrator sees it. */
export interface KubeCluster {
  readonly kubeconfig: string
  /** Makes a Node; its name has to be new. */
  create(
    name: string,
    podCidrs: readonly string[],
    annotations?: Readonly<Record<string, string>>,
    status?: object,
  ): Promise<void>
  annotate(name: string, annotations: Readonly<Record<string, string | null>>): Promise<void>
  /** Null removes a label. */
  label(name: string, labels: Readonly<Record<string, string | null>>): Promise<void>
  /** What the kubelet does every few minutes. `Unknown`: what Kubernetes writes when it no longer does. */
  heartbeat(name: string, ready?: 'True' | 'Unknown'): Promise<void>
  remove(name: string): Promise<void>
  get(name: string): Promise<Raw | undefined>
}

/** 10.244.0.0/16 for IPv4 alone. */
export const NETWORK = '{"Network":"10.244.0.0/16","Backend":{"Type":"vxlan"}}'
/** With fd44::/48. */
export const DUAL = '{"Network":"10.244.0.0/16","EnableIPv6":true,"IPv6Network":"fd44::/48","Backend":{"Type":"vxlan"}}'
const PREFIX = 'flannel.alpha.coreos.com/'
const MANAGED: Readonly<Record<string, string>> = { 'kube-subnet-manager': 'true', 'backend-type': 'vxlan' }

const dirs: string[] = []
const stores: SubnetStore[] = []
afterEach(async () => {
  for (const store of stores.splice(0)) await store.close()
  for (const dir of dirs.splice(0)) rmSync(dir, { recursive: true, force: true })
})

/** flannel's annotations of a node that ends in a number. */
export function published(last: number, more: Readonly<Record<string, string>> = {}): Record<string, string> {
  const said: Record<string, string> = {
    ...MANAGED,
    'public-ip': `172.30.0.${last}`,
    'backend-data': `{"VNI":1,"VtepMAC":"02:00:00:00:00:${last.toString(16).padStart(2, '0')}"}`,
    ...more,
  }
  return Object.fromEntries(Object.entries(said).map(([name, value]) => [`${PREFIX}${name}`, value]))
}

/** What a node asks for. */
export function draft(node: string, last: number, more: Partial<Draft> = {}): Draft {
  return {
    node,
    ips: { v4: parseIp(`172.30.0.${last}`) },
    backend: 'vxlan',
    data: { v4: { VNI: 1, VtepMAC: `02:00:00:00:00:${last.toString(16).padStart(2, '0')}` } },
    ...more,
  }
}

/** A node's store, closed with the test. */
export function storeOf(
  kubeconfig: string,
  node: string,
  more: Partial<Options> & { readonly network?: string } = {},
): SubnetStore {
  const { network = NETWORK, ...options } = more
  const dir = mkdtempSync('/tmp/kube-store-')
  dirs.push(dir)
  writeFileSync(join(dir, 'net-conf.json'), network)
  const store = open({ node, kubeconfig, configFile: join(dir, 'net-conf.json'), ...options })
  stores.push(store)
  return store
}

/** What a store tells last, followed until the test ends. */
export function followed(
  store: SubnetStore,
  signal: AbortSignal,
): { readonly last: () => Snapshot | undefined; readonly count: () => number } {
  let last: Snapshot | undefined
  let count = 0
  void (async () => {
    for await (const snapshot of store.leases(signal)) {
      last = snapshot
      count++
    }
  })()
  return { last: () => last, count: () => count }
}

const CONF = parseNetworkConf(NETWORK)
const names = (snapshot: Snapshot | undefined) => (snapshot?.leases ?? []).map(({ node }) => node)

/**
 * Defines the tests of the kube store; `cluster` makes one whose Nodes have the names that a test gives them, which no
 * other test uses.
 */
export function testKube(name: string, cluster: (test: Mocha.Context) => Promise<KubeCluster>): void {
  const signal = AbortSignal.timeout(patient(600_000))
  const end = new AbortController()
  const ended = AbortSignal.any([signal, end.signal])
  after(() => end.abort())

  it(`${name}: a node takes its pod CIDR and publishes what flanneld does, byte for byte; what it published last is read back`, async function () {
    const { kubeconfig, create, get } = await cluster(this)
    await create('own-1', ['10.244.1.0/24'])
    const store = storeOf(kubeconfig, 'own-1')
    const conf = await store.config(signal)
    const lease = await store.claim(draft('own-1', 1), conf, signal)
    assert.deepEqual(lease, {
      node: 'own-1',
      subnets: { v4: '10.244.1.0/24' },
      ips: { v4: '172.30.0.1' },
      backend: 'vxlan',
      data: { v4: { VNI: 1, VtepMAC: '02:00:00:00:00:01' } },
    })
    const annotations = (await get('own-1'))?.metadata.annotations ?? {}
    assert.deepEqual(
      Object.entries(annotations)
        .filter(([key]) => key.startsWith(PREFIX))
        .sort(),
      [
        [`${PREFIX}backend-data`, '{"VNI":1,"VtepMAC":"02:00:00:00:00:01"}'],
        [`${PREFIX}backend-type`, 'vxlan'],
        [`${PREFIX}kube-subnet-manager`, 'true'],
        [`${PREFIX}public-ip`, '172.30.0.1'],
      ],
    )
    assert.deepEqual(await store.remembered?.(signal), {
      addresses: {},
      data: { v4: { VNI: 1, VtepMAC: '02:00:00:00:00:01' } },
    })
    assert.equal(store.state().connected, true)
  })

  it(`${name}: both families; host-gw publishes null, as Go does; another prefix`, async function () {
    const { kubeconfig, create, get } = await cluster(this)
    await create('own-2', ['10.244.2.0/24', 'fd44:0:0:2::/64'])
    const store = storeOf(kubeconfig, 'own-2', { network: DUAL, annotationPrefix: 'example.org/net' })
    const both = { v4: parseIp('172.30.0.2'), v6: parseIp('fd30::2') }
    const lease = await store.claim(
      draft('own-2', 2, { ips: both, backend: 'host-gw', data: {} }),
      await store.config(signal),
      signal,
    )
    assert.deepEqual(lease.subnets, { v4: '10.244.2.0/24', v6: 'fd44:0:0:2::/64' })
    const annotations = Object.entries((await get('own-2'))?.metadata.annotations ?? {}).filter(([key]) =>
      key.startsWith('example.org/'),
    )
    assert.deepEqual(annotations.sort(), [
      ['example.org/net-backend-data', 'null'],
      ['example.org/net-backend-type', 'host-gw'],
      ['example.org/net-backend-v6-data', 'null'],
      ['example.org/net-kube-subnet-manager', 'true'],
      ['example.org/net-public-ip', '172.30.0.2'],
      ['example.org/net-public-ipv6', 'fd30::2'],
    ])
  })

  it(`${name}: peers come, change either family's data, and go; a heartbeat is no news`, async function () {
    const { kubeconfig, create, annotate, heartbeat, remove } = await cluster(this)
    await create('own-3', ['10.244.3.0/24', 'fd44:0:0:3::/64'])
    await create(
      'peer-3',
      ['10.244.13.0/24', 'fd44:0:0:13::/64'],
      published(13, { 'public-ipv6': 'fd30::13', 'backend-v6-data': '{"VNI":1,"VtepMAC":"02:00:00:00:06:0d"}' }),
    )
    const store = storeOf(kubeconfig, 'own-3', { network: DUAL })
    await store.config(signal)
    const seen = followed(store, ended)
    const peer = (): Lease | undefined => seen.last()?.leases.find(({ node }) => node === 'peer-3')
    await until(() => peer() !== undefined, 15_000)
    const before = seen.count()
    await heartbeat('peer-3')
    await annotate('peer-3', { [`${PREFIX}backend-v6-data`]: '{"VNI":1,"VtepMAC":"02:00:00:00:06:0e"}' })
    await until(() => JSON.stringify(peer()?.data.v6).includes('06:0e'), 15_000)
    assert.equal(seen.count(), before + 1)
    await annotate('peer-3', { [`${PREFIX}public-ip`]: '172.30.0.14' })
    await until(() => peer()?.ips.v4 === '172.30.0.14', 15_000)
    await remove('peer-3')
    await until(() => peer() === undefined, 15_000)
  })

  it(`${name}: leases count by the configuration that the node uses, though the file has another network now`, async function () {
    const { kubeconfig, create } = await cluster(this)
    await create('own-25', ['10.244.25.0/24'])
    await create('peer-25', ['10.244.125.0/24'], published(125))
    const dir = mkdtempSync('/tmp/kube-store-')
    dirs.push(dir)
    const configFile = join(dir, 'net-conf.json')
    writeFileSync(configFile, NETWORK)
    const store = open({ node: 'own-25', kubeconfig, configFile })
    stores.push(store)
    const conf = await store.config(signal)
    store.use?.(conf)
    const seen = followed(store, ended)
    const peers = () => names(seen.last()).filter((one) => one?.startsWith('peer-25'))
    await until(() => peers().length === 1, 15_000)
    writeFileSync(configFile, NETWORK.replace('10.244', '10.99'))
    assert.equal((await store.config(signal)).v4?.network, '10.99.0.0/16')
    await create('peer-25b', ['10.244.126.0/24'], published(126))
    await until(() => peers().length === 2, 15_000)
  })

  it(`${name}: of other nodes' text what cannot be read is named, and the rest is served; of two nodes with one pod CIDR the older has it`, async function () {
    const { kubeconfig, create } = await cluster(this)
    await create('own-4', ['10.244.4.0/24'])
    await create('good-4', ['10.244.41.0/24'], published(41))
    await create('outside-4', ['10.99.0.0/24'], published(42))
    await create('absurd-4', ['10.244.43.0/24'], published(43, { 'public-ip': 'not an address' }))
    await create('broken-4', ['10.244.44.0/24'], published(44, { 'backend-data': '{"VNI":' }))
    await create('long-4', ['10.244.45.0/24'], published(45, { 'backend-data': `"${'x'.repeat(5000)}"` }))
    await create('unmanaged-4', ['10.244.46.0/24'])
    await create('none-4', [], published(47))
    await Bun.sleep(1100)
    await create('twin-4', ['10.244.41.0/24'], published(48))
    const store = storeOf(kubeconfig, 'own-4')
    await store.config(signal)
    const seen = followed(store, ended)
    await until(() => (seen.last()?.unreadable.filter(({ key }) => key.endsWith('-4')).length ?? 0) >= 5, 15_000)
    assert.deepEqual(
      names(seen.last()).filter((one) => one?.endsWith('-4')),
      ['good-4'],
    )
    const why = Object.fromEntries((seen.last()?.unreadable ?? []).map((one) => [one.key, one.why]))
    assert.match(why['outside-4'] ?? '', /10\.99\.0\.0\/24 lies outside the network 10\.244\.0\.0\/16/)
    assert.match(why['absurd-4'] ?? '', /"not an address"/)
    assert.match(why['broken-4'] ?? '', /backend-data .* is no JSON/)
    assert.match(why['long-4'] ?? '', /more than 4096 characters/)
    assert.match(why['twin-4'] ?? '', /overlaps that of node "good-4", which is older/)
    // A node that comes late with the CIDR of one that is there gets no lease.
    await create('late-4', ['10.244.41.0/24'])
    const late = storeOf(kubeconfig, 'late-4')
    await late.config(signal)
    const others = followed(late, ended)
    await until(() => names(others.last()).includes('good-4'), 15_000)
    await assert.rejects(late.claim(draft('late-4', 49), CONF, signal), {
      name: 'StoreError',
      message: /"late-4": its pod CIDR 10\.244\.41\.0\/24 overlaps that of node "good-4", which is older/,
    })
  })

  it(`${name}: a Node without a pod CIDR, outside the network, or not there: the reason says what is missing`, async function () {
    const { kubeconfig, create } = await cluster(this)
    await create('bare-5', [])
    await create('wrong-5', ['10.99.5.0/24'])
    const claim = (node: string) => storeOf(kubeconfig, node).claim(draft(node, 5), CONF, signal)
    await assert.rejects(claim('bare-5'), {
      name: 'StoreError',
      message: /"bare-5": it has no pod CIDR; want .*--allocate-node-cidrs=true/,
    })
    await assert.rejects(claim('wrong-5'), {
      name: 'StoreError',
      message: /10\.99\.5\.0\/24 lies outside the network 10\.244\.0\.0\/16/,
    })
    await assert.rejects(claim('nobody-5'), {
      name: 'StoreError',
      message: /There is no Node "nobody-5" in the cluster; want .*NODE_NAME/,
    })
  })

  it(`${name}: an address that an administrator wants published takes the place of the node's own, now and when it changes; node-public-ip is told to the agent`, async function () {
    const { kubeconfig, create, annotate, get } = await cluster(this)
    await create('own-6', ['10.244.6.0/24'], {
      [`${PREFIX}public-ip-overwrite`]: '203.0.113.6',
      [`${PREFIX}node-public-ip`]: '172.30.0.66',
    })
    const store = storeOf(kubeconfig, 'own-6')
    await store.config(signal)
    assert.deepEqual((await store.remembered?.(signal))?.addresses, { v4: '172.30.0.66' })
    const seen = followed(store, ended)
    const own = () => seen.last()?.leases.find(({ node }) => node === 'own-6')
    assert.deepEqual((await store.claim(draft('own-6', 6), CONF, signal)).ips, { v4: '203.0.113.6' })
    assert.equal((await get('own-6'))?.metadata.annotations?.[`${PREFIX}public-ip`], '203.0.113.6')
    await until(() => own()?.ips.v4 === '203.0.113.6', 15_000)
    await annotate('own-6', { [`${PREFIX}public-ip-overwrite`]: '203.0.113.7' })
    await until(() => own() === undefined, 15_000)
    assert.deepEqual((await store.claim(draft('own-6', 6), CONF, signal)).ips, { v4: '203.0.113.7' })
    await annotate('own-6', { [`${PREFIX}public-ip-overwrite`]: 'nonsense' })
    await assert.rejects(store.claim(draft('own-6', 6), CONF, signal), {
      name: 'StoreError',
      message: /public-ip-overwrite of the Node "own-6": "nonsense": want an IP address/,
    })
  })

  it(`${name}: the condition NetworkUnavailable is written when the node serves, and again for a Node that was made again; release takes everything back`, async function () {
    const { kubeconfig, create, remove, get } = await cluster(this)
    await create('own-7', ['10.244.7.0/24'])
    const store = storeOf(kubeconfig, 'own-7')
    const conf = await store.config(signal)
    followed(store, ended)
    await store.claim(draft('own-7', 7), conf, signal)
    await store.ready?.()
    const condition = async () =>
      (await get('own-7'))?.status?.conditions?.find(({ type }) => type === 'NetworkUnavailable')
    const found: Readonly<Record<string, unknown>> = (await condition()) ?? {}
    assert.deepEqual(
      [found['status'], found['reason'], found['message']],
      ['False', 'FlannelIsUp', 'Flannel is running on this node'],
    )
    await remove('own-7')
    await create('own-7', ['10.244.77.0/24'])
    await until(async () => (await condition())?.['status'] === 'False', 15_000)
    const lease = await store.claim(
      draft('own-7', 7, { before: { v4: '10.244.7.0/24' as never }, fixed: true }),
      conf,
      signal,
    )
    assert.deepEqual(lease.subnets, { v4: '10.244.77.0/24' })
    await store.release('own-7')
    const annotations = Object.keys((await get('own-7'))?.metadata.annotations ?? {}).filter((key) =>
      key.startsWith(PREFIX),
    )
    assert.deepEqual([annotations, (await condition())?.['status']], [[], 'True'])
    await store.release('nobody-7')
  })
}
