// lane: peers
// needs: reference
// Tests plugins/host-device.ts.
import assert from 'node:assert/strict'
import { existsSync } from 'node:fs'
import { references } from '../../../scripts/peers.ts'
import { inNamespaces, type Namespace, ping, plugin, type Row, until } from '../../support/harness.ts'
import { linkOf, makeDevices, names } from '../../support/host-devices.ts'
import { containerId, traces } from '../../support/network.ts'
import { skip } from '../../support/skip.ts'

// Debian's, or the one that was built: a folder may hold some of the plugins only.
const reference = references()
  .map(({ path, version }) => ({ file: `${path}/host-device`, version }))
  .find(({ file }) => existsSync(file))
const ADDRESSES = [{ address: '10.1.0.10/24', gateway: '10.1.0.1' }, { address: 'fd00:1::10/64' }]
const ROUTES = [{ dst: '0.0.0.0/0' }, { dst: '10.9.0.0/16', gw: '10.1.0.7' }]
const CASES: Readonly<Record<string, object>> = {
  'device, with addresses and routes': {
    device: 'dev0',
    ipam: { type: 'static', addresses: ADDRESSES, routes: ROUTES },
  },
  'hwaddr, one address, dns': {
    hwaddr: '02:00:00:00:01:10',
    ipam: { type: 'static', addresses: ADDRESSES.slice(0, 1) },
    dns: { nameservers: ['10.1.0.1'] },
  },
  'device, without a pool': { device: 'dev0' },
}

describe(`host-device beside the reference's ${reference?.version ?? ''}`, () => {
  before(function () {
    if (!reference) skip(this, 'no reference plugins with host-device (package containernetworking-plugins)')
  })

  for (const [what, keys] of Object.entries(CASES))
    for (const cniVersion of ['0.3.1', '0.4.0', '1.0.0'])
      it(
        `${what}, CNI ${cniVersion}: the same result, the same device, addresses and routes in the container, and the device back`,
        inNamespaces(['ours', 'theirs', 'pod1', 'pod2'], async ({ ours, theirs, pod1, pod2 }) => {
          const conf = { cniVersion, name: 'beside', type: 'host-device', ...keys }
          const one = await attached(ours, pod1, conf)
          const two = await attached(theirs, pod2, conf, `${reference?.file}`)
          assert.deepEqual(one, two)
        }),
      )

  for (const alias of ['', 'uplink'])
    it(
      `a DEL by the reference gives back what plumb lent; its alias was "${alias}"`,
      inNamespaces(['node', 'pod'], async ({ node, pod }) => {
        const conf = { cniVersion: '1.0.0', name: 'beside', type: 'host-device', device: 'dev0' }
        await makeDevices(node, 'dev0')
        await node.ip('link', 'set', 'dev', 'dev0', 'alias', alias)
        const call = { conf, netns: pod, containerId: containerId(pod) }
        assert.equal((await plugin('host-device', { command: 'ADD', ...call }, node)).status, 0)
        const { status, stdout } = await plugin(
          'host-device',
          { command: 'DEL', ...call, file: `${reference?.file}` },
          node,
        )
        assert.equal(status, 0, stdout)
        assert.deepEqual(await names(node), ['br0', 'dev0', 'far-dev0'])
        // The runtime of a node that came back to plumb may say so once more.
        assert.equal((await plugin('host-device', { command: 'DEL', ...call }, node)).stdout, '')
        assert.equal((await linkOf(node, 'dev0'))['isUp'], false)
        assert.deepEqual(traces(pod, { name: 'beside' }), [])
      }),
    )

  it(
    'HD 112: a DEL by plumb gives back what the reference lent',
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      const conf = { cniVersion: '1.0.0', name: 'beside', type: 'host-device', device: 'dev0' }
      await makeDevices(node, 'dev0')
      const before = await linkOf(node, 'dev0')
      const call = { conf, netns: pod, containerId: containerId(pod) }
      assert.equal(
        (await plugin('host-device', { command: 'ADD', ...call, file: `${reference?.file}` }, node)).status,
        0,
      )
      for (const _ of [1, 2]) assert.equal((await plugin('host-device', { command: 'DEL', ...call }, node)).stdout, '')
      assert.deepEqual(await linkOf(node, 'dev0'), before)
    }),
  )
})

/**
 * What an ADD of either comes to, and what its DEL leaves: result, the pod's link, addresses and routes, the node's
 * links.
 */
async function attached(node: Namespace, pod: Namespace, conf: Row, file?: string): Promise<object> {
  await makeDevices(node, 'dev0')
  const call = { conf, netns: pod, containerId: containerId(pod), path: '/usr/lib/cni', ...(file && { file }) }
  const { status, stdout, result } = await plugin('host-device', { command: 'ADD', ...call }, node)
  assert.equal(status, 0, stdout)
  if (conf['ipam']) assert.ok(await until(() => ping(node, '10.1.0.10')))
  const { ifalias: _, ...link } = await linkOf(pod, 'eth0')
  // Its own link-local address is tentative for a while.
  const held = (await pod.json('addr', 'show', 'eth0'))[0]?.['addr_info'].flatMap(({ local, prefixlen, scope }: Row) =>
    scope === 'link' ? [] : `${local}/${prefixlen} ${scope}`,
  )
  const routes = (await pod.json('route')).map(({ dst, gateway, dev }) => `${dst} ${gateway} ${dev}`).sort()
  if (conf['cniVersion'] >= '0.4.0')
    assert.equal(
      (await plugin('host-device', { command: 'CHECK', ...call, conf: { ...conf, prevResult: result } }, node)).status,
      0,
    )
  const { status: gone, stdout: said } = await plugin(
    'host-device',
    { command: 'DEL', ...call, conf: { ...conf, prevResult: result } },
    node,
  )
  assert.equal(gone, 0, said)
  assert.deepEqual(traces(pod, { name: 'beside' }), [])
  const { dns: __, ...shown } = result
  return {
    result: JSON.parse(JSON.stringify(shown).replaceAll(pod.path, 'POD')),
    dns: conf['dns'] ? result['dns'] : {},
    link,
    held,
    routes,
    left: await names(node),
    device: await linkOf(node, 'dev0').then(({ ifalias: _alias, ...rest }) => rest),
  }
}
