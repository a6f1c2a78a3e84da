// lane: netns
// Tests plugins/static.ts.
import assert from 'node:assert/strict'
import { inNamespaces, ping, type Row, until } from '../../support/harness.ts'
import { network, traces } from '../../support/network.ts'
import { addresses } from '../../support/pool.ts'
import { asTheirs, bridged, call, DUAL, fails, gateways, outcome, staticConf } from '../../support/static.ts'
import { testPlugin } from '../../support/suites/testPlugin.ts'

const VERSIONS = ['0.1.0', '0.2.0', '0.3.0', '0.3.1', '0.4.0', '1.0.0', '1.1.0']

testPlugin({
  type: 'static',
  conf: () => staticConf({ addresses: DUAL, routes: [{ dst: '0.0.0.0/0' }] }, { cniVersion: '1.1.0', type: 'static' }),
  refused: (conf) => ({ ...conf, ipam: { ...conf.ipam, addresses: [{ address: '10.1.0.7' }] } }),
  // It keeps nothing, so that it cannot tell a second call from a first.
  again: 'same',
  async works(_pod, result) {
    assert.deepEqual(addresses(result), ['10.1.0.7', 'fd00:1::7'])
  },
})

describe('static: what it gives', () => {
  for (const cniVersion of VERSIONS) {
    it(
      `${cniVersion}: one address and many, in order, with routes and dns, as the reference gives them where it is installed; DEL has nothing to do`,
      inNamespaces(['node'], async ({ node }) => {
        const rest = {
          routes: [{ dst: '0.0.0.0/0' }, { dst: '192.0.2.0/24', gw: '10.1.0.9', priority: 7 }],
          dns: { nameservers: ['192.0.2.53'], domain: 'example.org', search: ['a.example'], options: ['ndots:2'] },
        }
        const many = [
          ...DUAL,
          { address: '10.2.0.7/16', gateway: '' },
          { address: 'fd00:2::7/64', gateway: 'fd00:2::1' },
        ]
        for (const [list, wanted] of [
          [[DUAL[0]], ['10.1.0.7']],
          [DUAL, ['10.1.0.7', 'fd00:1::7']],
          [many, ['10.1.0.7', 'fd00:1::7', '10.2.0.7', 'fd00:2::7']],
        ] as const) {
          const conf = staticConf({ addresses: list, ...rest }, { cniVersion })
          if (list === many && cniVersion < '0.3.0') {
            await fails(
              node,
              { conf },
              7,
              /^Cannot read ipam\.addresses: CNI version 0\.[12]\.0 does not support more than 1 address per family; want/,
            )
            continue
          }
          const { status, stdout, stderr, result } = await call(node, { conf })
          assert.deepEqual([status, stderr, addresses(result)], [0, '', wanted], stdout)
          assert.deepEqual(result['dns'], rest.dns)
          await asTheirs(node, stdout, { conf })
          for (const netns of ['/run/netns/gone', '', null])
            assert.deepEqual(outcome(await call(node, { command: 'DEL', conf, netns })), [0, '', ''])
        }
      }),
    )
  }

  it(
    'CNI_ARGS: IP is appended, and GATEWAY goes to what lies in its subnet and has none of its own',
    inNamespaces(['node'], async ({ node }) => {
      const conf = staticConf({ addresses: [DUAL[0], { address: '10.3.0.7/24', gateway: '10.3.0.1' }] })
      for (const args of [
        'IP=10.2.0.3/24',
        'IP=10.2.0.3/24, fd00:2::3/64;GATEWAY=10.2.0.1,fd00:2::1',
        'IgnoreUnknown=1;K8S_POD_NAME=web;IP=10.2.0.3/24;GATEWAY=10.2.0.1, 10.2.0.9,192.0.2.1',
        'IP=;GATEWAY=',
      ]) {
        const { status, stdout, result } = await call(node, { conf, args })
        assert.equal(status, 0, stdout)
        await asTheirs(node, stdout, { conf, args })
        assert.deepEqual(gateways(result).slice(0, 2), [
          ['10.1.0.7/24', '10.1.0.1'],
          ['10.3.0.7/24', '10.3.0.1'],
        ])
        if (args.includes('fd00'))
          assert.deepEqual(gateways(result).slice(2), [
            ['10.2.0.3/24', '10.2.0.1'],
            ['fd00:2::3/64', 'fd00:2::1'],
          ])
      }
      const { result } = await call(node, {
        conf: staticConf({ addresses: [{ address: '10.1.0.7/24' }] }),
        args: 'GATEWAY=10.1.0.9',
      })
      assert.deepEqual(gateways(result), [['10.1.0.7/24', '10.1.0.9']])
    }),
  )

  const asked = { args: { cni: { ips: ['10.2.0.3/24', 'fd00:2::3/64'] } }, runtimeConfig: { ips: ['10.3.0.3/24'] } }
  const sources: Record<string, { more: object; args?: string; gives: [string, string?][] }> = {
    'args.cni.ips replaces configuration and CNI_ARGS': {
      more: { args: asked.args },
      args: 'IP=10.9.0.3/24',
      gives: [['10.2.0.3/24'], ['fd00:2::3/64']],
    },
    'runtimeConfig.ips replaces the configuration': {
      more: { runtimeConfig: asked.runtimeConfig },
      gives: [['10.3.0.3/24']],
    },
    'of all three runtimeConfig.ips wins': {
      more: asked,
      args: 'IP=10.9.0.3/24;GATEWAY=10.3.0.1',
      gives: [['10.3.0.3/24']],
    },
  }
  for (const [what, { more, args = '', gives }] of Object.entries(sources)) {
    it(
      `${what}, with an address there or none`,
      inNamespaces(['node'], async ({ node }) => {
        for (const ipam of [{ addresses: DUAL }, {}]) {
          const conf = staticConf(ipam, more)
          const { status, stdout, result } = await call(node, { conf, args })
          assert.equal(status, 0, stdout)
          assert.deepEqual(
            gateways(result),
            gives.map(([address, gateway]) => [address, gateway]),
          )
          await asTheirs(node, stdout, { conf, args })
        }
      }),
    )
  }

  it(
    'keys are read in any case, and empty strings, which podman sends, ask for nothing',
    inNamespaces(['node'], async ({ node }) => {
      const conf = {
        cniVersion: '1.0.0',
        NAME: 'pool',
        Ipam: {
          TYPE: 'static',
          ADDRESSES: [{ Address: '10.1.0.7/24', Gateway: '10.1.0.1' }],
          Routes: [{ DST: '10.9.0.0/16', GW: '10.1.0.3' }],
          DNS: { NameServers: ['192.0.2.53'] },
        },
        RuntimeConfig: { IPs: ['', ''] },
        ARGS: { CNI: { Ips: [''] } },
      }
      const { status, result, stdout } = await call(node, { conf })
      assert.equal(status, 0, stdout)
      assert.deepEqual(result, {
        cniVersion: '1.0.0',
        ips: [{ address: '10.1.0.7/24', gateway: '10.1.0.1' }],
        routes: [{ dst: '10.9.0.0/16', gw: '10.1.0.3' }],
        dns: { nameservers: ['192.0.2.53'] },
      })
    }),
  )
})

describe('static: under an interface plugin', () => {
  for (const type of ['bridge', 'ptp']) {
    it(
      `${type}: configured and asked-for addresses are on the link, answer, and go with it`,
      inNamespaces(['node', 'pod', 'other'], async ({ node, pod, other }) => {
        const ipam = {
          addresses: [
            { address: '10.1.0.7/24', gateway: '10.1.0.1' },
            { address: 'fd00:1::7/64', gateway: 'fd00:1::1' },
          ],
          routes: [{ dst: '0.0.0.0/0' }],
        }
        const net = network(node, { ...bridged(ipam), type })
        const result = await net.add(pod, { args: 'IP=10.2.0.7/24;GATEWAY=10.2.0.1' })
        const ips = ['10.1.0.7', 'fd00:1::7', '10.2.0.7']
        assert.deepEqual(addresses(result), ips)
        for (const ip of ips) assert.ok(await until(() => ping(node, ip)), ip)
        for (const ip of ['10.1.0.1', 'fd00:1::1', '10.2.0.1']) assert.ok(await until(() => ping(pod, ip)), ip)
        const more = { runtimeConfig: { ips: ['10.1.0.8/24', 'fd00:1::8/64'] } }
        // Without a gateway of its own this one has its subnet's first address.
        await net.add(other, { conf: { ...net.conf, ...more } })
        for (const ip of ['10.1.0.8', 'fd00:1::8']) assert.ok(await until(() => ping(pod, ip)), ip)
        await net.check(pod, result, { args: 'IP=10.2.0.7/24;GATEWAY=10.2.0.1' })
        await net.del(pod)
        assert.deepEqual([await ping(node, '10.1.0.7'), traces(pod, net.conf)], [false, []])
        assert.ok(await ping(node, '10.1.0.8'))
      }),
    )
  }

  it(
    'two routes of one destination stay two in the result, and are one multipath route in the pod',
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      const routes = [
        { dst: '10.9.0.0/16', gw: '10.1.0.1' },
        { dst: '10.9.0.0/16', gw: '10.1.0.2' },
      ]
      const net = network(node, bridged({ addresses: DUAL, routes }))
      const result = await net.add(pod)
      assert.deepEqual(result['routes'], routes)
      const [row] = await pod.json('route', 'show', '10.9.0.0/16')
      assert.deepEqual(
        row?.['nexthops'].map(({ gateway }: Row) => gateway),
        ['10.1.0.1', '10.1.0.2'],
      )
      await net.check(pod, result)
    }),
  )
})
