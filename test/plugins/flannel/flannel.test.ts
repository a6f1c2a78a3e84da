// lane: netns
// Tests plugins/flannel.ts.
import assert from 'node:assert/strict'
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { ENV, flannelConf, subnetFile, writeEnv } from '../../support/flannel.ts'
import { foreignPlugin } from '../../support/foreign-plugin.ts'
import { inNamespaces, ping, plugin, type Row, snapshot, until } from '../../support/harness.ts'
import { answersBothWays, type Conf, containerId, network, traces } from '../../support/network.ts'
import { testPlugin } from '../../support/suites/testPlugin.ts'

const ADDED = { cniVersion: '1.1.0', ips: [{ address: '10.1.17.2/24' }], someKey: { of: 'its maker' } }
/**
 * What flannel-io/cni-plugin (commit 092e6d2) wrote for `{"cniVersion":"1.0.0","name":"cbr0","type":"flannel"}` and
 * each subnet.env.
 */
const UPSTREAM: Readonly<Record<keyof typeof ENV, string>> = {
  v4: '{"cniVersion":"1.0.0","ipMasq":false,"ipam":{"ranges":[[{"subnet":"10.1.17.0/24"}]],"routes":[{"dst":"10.1.0.0/16"}],"type":"host-local"},"isGateway":true,"mtu":1472,"name":"cbr0","type":"bridge"}',
  'two networks':
    '{"cniVersion":"1.0.0","ipMasq":false,"ipam":{"ranges":[[{"subnet":"10.1.17.0/24"}]],"routes":[{"dst":"10.1.0.0/16"},{"dst":"192.168.0.0/16"}],"type":"host-local"},"isGateway":true,"mtu":1472,"name":"cbr0","type":"bridge"}',
  v6: '{"cniVersion":"1.0.0","ipMasq":false,"ipam":{"ranges":[[{"subnet":"fc00::/64"}]],"routes":[{"dst":"fc00::/48"}],"type":"host-local"},"isGateway":true,"mtu":1472,"name":"cbr0","type":"bridge"}',
  dual: '{"cniVersion":"1.0.0","ipMasq":true,"ipam":{"ranges":[[{"subnet":"10.1.17.0/24"}],[{"subnet":"fc00::/64"}]],"routes":[{"dst":"10.1.0.0/16"},{"dst":"fc00::/48"}],"type":"host-local"},"isGateway":true,"mtu":1472,"name":"cbr0","type":"bridge"}',
}

testPlugin({
  type: 'flannel',
  // In the default folder, where the suite looks for what is left.
  conf: () => flannelConf(ENV.dual, { dataDir: undefined }),
  refused: (conf) => ({ ...conf, delegate: { ...(conf['delegate'] as object), mtu: -1 } }),
  again: 'refused',
  works: (pod, result, node) => answersBothWays(node, pod, result, ['10.1.17.1', 'fc00::1']),
})

describe('flannel', () => {
  for (const [stack, env] of Object.entries(ENV)) {
    it(
      `${stack}: the delegate is asked for what flannel's own plugin asks, that is kept for DEL, which asks the same and removes it`,
      inNamespaces(['node', 'pod'], async ({ node, pod }) => {
        const bridge = foreignPlugin({ ADD: ADDED }, 'bridge')
        const conf = {
          cniVersion: '1.0.0',
          name: 'cbr0',
          type: 'flannel',
          subnetFile: subnetFile(env),
          dataDir: mkdtempSync('/run/flannel-'),
        }
        const net = network(node, conf)
        await net.add(pod, { path: bridge.dir })
        const wanted = JSON.parse(UPSTREAM[stack as keyof typeof ENV])
        assert.deepEqual(JSON.parse(bridge.stdin('ADD')), wanted)
        assert.deepEqual(kept(conf), { [`${containerId(pod)}:eth0`]: wanted })
        await net.del(pod, { path: bridge.dir })
        assert.deepEqual(JSON.parse(bridge.stdin('DEL')), wanted)
        assert.deepEqual(readdirSync(conf.dataDir), [])
      }),
    )

    it(
      `${stack}: with plumb's bridge the pod has addresses of the node's subnets, routes to the network and the agent's MTU`,
      inNamespaces(['node', 'pod'], async ({ node, pod }) => {
        const conf = flannelConf(env)
        const net = network(node, conf)
        const result = await net.add(pod)
        const six = env.includes('IPV6')
        assert.deepEqual(
          result['ips'].map((ip: Row) => [ip['address'], ip['gateway']]),
          [
            ...(env.includes('10.1.17') ? [['10.1.17.2/24', '10.1.17.1']] : []),
            ...(six ? [['fc00::2/64', 'fc00::1']] : []),
          ],
        )
        for (const { gateway } of result['ips']) await until(() => ping(pod, gateway))
        assert.equal((await pod.json('link', 'show', 'dev', 'eth0'))[0]?.['mtu'], 1472)
        const routes = [...(await pod.json('-4', 'route')), ...(await pod.json('-6', 'route'))].map(
          ({ dst, gateway }) => `${dst} ${gateway}`,
        )
        for (const [, dst = ''] of env.matchAll(/NETWORK=([^,\n]+)/g))
          assert.ok(routes.includes(`${dst} ${dst.includes(':') ? 'fc00::1' : '10.1.17.1'}`), `${dst} in ${routes}`)
        await net.check(pod, result)
        await net.del(pod)
        assert.deepEqual(
          [traces(pod, conf), readdirSync(conf.dataDir), await node.json('link', 'show', 'type', 'veth')],
          [[], [], []],
        )
      }),
    )
  }

  it(
    'without subnetFile and dataDir it uses /run/flannel/subnet.env and /var/lib/cni/flannel',
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      const net = network(node, flannelConf('', { subnetFile: undefined, dataDir: undefined }))
      writeEnv('/run/flannel/subnet.env', ENV.v4)
      try {
        assert.equal((await net.add(pod))['ips'][0].address, '10.1.17.2/24')
        assert.ok(readdirSync('/var/lib/cni/flannel').includes(`${containerId(pod)}:eth0`))
        await net.del(pod)
        assert.deepEqual(traces(pod, net.conf), [])
      } finally {
        rmSync('/run/flannel/subnet.env')
      }
    }),
  )

  it(
    'each key of subnet.env that is missing or malformed is named with its line, all at once, and nothing is made',
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      const line = (from: string, to: string) => ENV.dual.replace(new RegExp(`^${from}=.*$`, 'm'), `${from}=${to}`)
      const cidr = 'want an address with a prefix length such as 10.1.0.0/24 or fd00::/64'
      const cases: readonly (readonly [string, string])[] = [
        [
          'foo=bar\n',
          'it is missing FLANNEL_NETWORK or FLANNEL_IPV6_NETWORK; it is missing FLANNEL_SUBNET or FLANNEL_IPV6_SUBNET; it is missing FLANNEL_MTU; it is missing FLANNEL_IPMASQ',
        ],
        [ENV.v4.replace(/^FLANNEL_MTU.*\n/m, ''), 'it is missing FLANNEL_MTU'],
        [ENV.v6.replace(/^FLANNEL_IPV6_SUBNET.*\n/m, ''), 'it is missing FLANNEL_SUBNET or FLANNEL_IPV6_SUBNET'],
        [ENV.v4.replace('FLANNEL_IPMASQ=true', 'FLANNEL_IPMASQ'), 'it is missing FLANNEL_IPMASQ'],
        [line('FLANNEL_NETWORK', '10.1.0.0/16,10.2/16'), `line 1: FLANNEL_NETWORK "10.2/16": ${cidr}`],
        [line('FLANNEL_SUBNET', '10.1.17.1/33'), `line 2: FLANNEL_SUBNET "10.1.17.1/33": ${cidr}`],
        [line('FLANNEL_IPV6_NETWORK', 'fc00::/129'), `line 3: FLANNEL_IPV6_NETWORK "fc00::/129": ${cidr}`],
        [line('FLANNEL_IPV6_SUBNET', 'x'), `line 4: FLANNEL_IPV6_SUBNET "x": ${cidr}`],
        [
          line('FLANNEL_MTU', '-1').replace('IPMASQ=false', 'IPMASQ=maybe'),
          'line 5: FLANNEL_MTU "-1": want a number of bytes, 0 to 65535; line 6: FLANNEL_IPMASQ "maybe": want true or false',
        ],
      ]
      const before = await snapshot(node)
      for (const [env, problems] of cases) {
        const conf = flannelConf(env)
        const { code, msg } = await network(node, conf).fails('ADD', pod)
        assert.deepEqual([code, msg], [7, `Cannot read ${conf.subnetFile}: ${problems}`])
        assert.deepEqual([readdirSync(conf.dataDir), traces(pod, conf)], [[], []])
      }
      assert.equal(await snapshot(node), before)
      const generous = flannelConf(
        `# by hand\nexport FLANNEL_NETWORK = "10.1.0.0/16"\r\nFLANNEL_SUBNET='10.1.17.1/24'\nOTHER\nFLANNEL_MTU=9000\nFLANNEL_MTU=1400\nFLANNEL_IPMASQ=true`,
      )
      await network(node, generous).add(pod)
      assert.equal((await pod.json('link', 'show', 'dev', 'eth0'))[0]?.['mtu'], 1400)
    }),
  )

  it(
    "ipam is the base of the delegate's, its type and routes kept first; the delegate's own keys win; runtimeConfig is passed on",
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      const ptp = foreignPlugin({ ADD: ADDED }, 'ptp')
      const routes = [{ dst: '10.96.0.0/12' }, { dst: '192.168.244.0/24', gw: '10.1.17.20', mtu: 1300, priority: 3 }]
      const runtimeConfig = { portMappings: [{ hostPort: 80, containerPort: 80 }], bandwidth: { ingressRate: 1 } }
      const ranges = [[{ subnet: '10.1.17.0/24' }]]
      const cases: readonly (readonly [object, object])[] = [
        [
          { ipam: { type: 'my-ipam', routes, other: 'kept' }, runtimeConfig },
          {
            ipMasq: false,
            mtu: 1472,
            runtimeConfig,
            ipam: { type: 'my-ipam', other: 'kept', ranges, routes: [...routes, { dst: '10.1.0.0/16' }] },
          },
        ],
        [
          { ipam: { ranges: 'of no use', routes } },
          {
            ipMasq: false,
            mtu: 1472,
            ipam: { type: 'host-local', ranges, routes: [...routes, { dst: '10.1.0.0/16' }] },
          },
        ],
        [
          { delegate: { ipMasq: true, mtu: 1400, isGateway: false, some: [1] } },
          {
            ipMasq: true,
            mtu: 1400,
            isGateway: false,
            some: [1],
            ipam: { type: 'host-local', ranges, routes: [{ dst: '10.1.0.0/16' }] },
          },
        ],
      ]
      for (const [keys, wanted] of cases) {
        const { delegate, ...rest } = keys as { delegate?: object }
        const conf = flannelConf(ENV.v4, { ipam: undefined, ...rest, delegate: { type: 'ptp', ...delegate } })
        await network(node, conf).add(pod, { path: ptp.dir })
        assert.deepEqual(JSON.parse(ptp.stdin('ADD')), { cniVersion: '1.1.0', name: conf.name, type: 'ptp', ...wanted })
      }
    }),
  )

  it(
    'a delegate with a name, an ipam or a type that is no string is refused, whatever case it is written in, and one that is nowhere is named',
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      const cases: readonly (readonly [object, string])[] = [
        [{ name: 'x' }, `Cannot read delegate.name "x": want none, the delegate has the network's name`],
        [
          { IPAM: {} },
          'Cannot read delegate.ipam {}: want none, it is made of "ipam" beside "delegate" and of the subnet file',
        ],
        [{ type: 7 }, 'Cannot read delegate.type 7: want a string'],
        [{ type: '../bridge' }, 'Cannot read delegate.type "../bridge": want the name of a plugin, such as bridge'],
        [{ type: 'nowhere' }, 'Cannot find the delegate plugin "nowhere"'],
        [{ type: 'flannel' }, 'Cannot find the delegate plugin "flannel"'],
      ]
      for (const [delegate, wanted] of cases) {
        const conf = flannelConf(ENV.v4, { delegate })
        const { code, msg } = await network(node, conf).fails('ADD', pod)
        assert.deepEqual([code, msg, readdirSync(conf.dataDir)], [7, wanted, []])
      }
    }),
  )

  it(
    'nothing on stderr in normal use',
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      // As kube-flannel.yml has it, and as kubelet and containerd call it.
      const conf: Conf = flannelConf(ENV.v4, {
        cniVersion: '0.3.1',
        delegate: { bridge: 'br0', hairpinMode: true, isDefaultGateway: true },
      })
      const args = 'IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=web;K8S_POD_INFRA_CONTAINER_ID=x'
      const call = async (command: string, more: object = {}) => {
        const { status, stdout, stderr, result } = await plugin(
          'flannel',
          { command, conf: { ...conf, ...more }, containerId: containerId(pod), netns: pod, args },
          node,
        )
        assert.deepEqual([status, stderr], [0, ''], stdout)
        return result
      }
      const added = await call('ADD')
      for (const [command, more] of [
        ['CHECK', { cniVersion: '1.1.0', prevResult: { ...added, cniVersion: undefined } }],
        ['STATUS', { cniVersion: '1.1.0' }],
        [
          'GC',
          { cniVersion: '1.1.0', 'cni.dev/valid-attachments': [{ containerID: containerId(pod), ifname: 'eth0' }] },
        ],
        ['DEL', {}],
        ['DEL', {}],
      ] as const)
        await call(command, more)
    }),
  )
})

/** What is kept, by file. */
function kept({ dataDir }: { readonly dataDir: string }): Record<string, unknown> {
  return Object.fromEntries(
    readdirSync(dataDir).map((name) => [name, JSON.parse(readFileSync(join(dataDir, name), 'utf8'))]),
  )
}
