// lane: netns
// Tests plugins/static.ts.
import assert from 'node:assert/strict'
import { inNamespaces, snapshot } from '../../support/harness.ts'
import { type Conf, containerId, network, traces } from '../../support/network.ts'
import { asTheirs, bridged, call, DUAL, fails, outcome, staticConf } from '../../support/static.ts'

describe('static: what it refuses', () => {
  const bad: Record<string, { ipam?: object | null; more?: object; args?: string; code?: number; msg: RegExp }> = {
    'an address without a length': {
      ipam: { addresses: [DUAL[0], { address: '10.1.0.2' }] },
      msg: /^Cannot read ipam\.addresses\[1\]\.address "10\.1\.0\.2": want an address with a prefix length such as/,
    },
    'an address that is missing': {
      ipam: { addresses: [{ gateway: '10.1.0.1' }] },
      msg: /^Cannot read ipam\.addresses\[0\]\.address: it is missing$/,
    },
    'a gateway that is none': {
      ipam: { addresses: [{ address: '10.1.0.2/24', gateway: '10.1.0.999' }] },
      msg: /^Cannot read ipam\.addresses\[0\]\.gateway "10\.1\.0\.999": want an IP address/,
    },
    'a gateway of the other family': {
      ipam: { addresses: [{ address: '10.1.0.2/24', gateway: 'fd00::1' }] },
      msg: /^Cannot read ipam\.addresses\[0\] gateway "fd00::1": want an address of the family of 10\.1\.0\.2\/24$/,
    },
    'a route without a length': {
      ipam: { addresses: DUAL, routes: [{ dst: '10.9.0.0' }] },
      msg: /^Cannot read ipam\.routes\[0\]\.dst "10\.9\.0\.0": want/,
    },
    'a list that is none': {
      ipam: { addresses: '10.1.0.2/24' },
      msg: /^Cannot read ipam\.addresses "10\.1\.0\.2\/24": want an array$/,
    },
    'args.cni.ips without a length': {
      ipam: {},
      more: { args: { cni: { ips: ['10.1.0.2'] } } },
      msg: /^Cannot read args\.cni\.ips\[0\] "10\.1\.0\.2": want an address with a prefix length/,
    },
    'runtimeConfig.ips without a length': {
      ipam: {},
      more: { runtimeConfig: { ips: ['10.1.0.2/24', 'fd00::2'] } },
      msg: /^Cannot read runtimeConfig\.ips\[1\] "fd00::2": want an address with a prefix length/,
    },
    'no ipam, though args has addresses': {
      ipam: null,
      more: { args: { cni: { ips: ['10.1.0.2/24'] } } },
      msg: /^Cannot read ipam: it is missing$/,
    },
    'no ipam, though runtimeConfig has addresses': {
      ipam: null,
      more: { runtimeConfig: { ips: ['10.1.0.2/24'] } },
      msg: /^Cannot read ipam: it is missing$/,
    },
    'IP without a length': {
      ipam: { addresses: DUAL },
      args: 'IP=10.2.0.3/24,10.2.0.4',
      code: 4,
      msg: /^Cannot read IP of CNI_ARGS "10\.2\.0\.4": want an address with a prefix length/,
    },
    'GATEWAY that is none': {
      ipam: { addresses: DUAL },
      args: 'GATEWAY=10.1.0.0/24',
      code: 4,
      msg: /^Cannot read GATEWAY of CNI_ARGS "10\.1\.0\.0\/24": want an IP address/,
    },
    'a key of CNI_ARGS that it does not know': {
      ipam: { addresses: DUAL },
      args: 'MAC=02:00:00:00:00:01',
      code: 4,
      msg: /^Cannot read CNI_ARGS: unknown args \["MAC=02:00:00:00:00:01"\]$/,
    },
  }
  for (const [what, { ipam = {}, more = {}, args = '', code = 7, msg }] of Object.entries(bad)) {
    it(
      `${what}: an error that names it; a bridge over it makes nothing`,
      inNamespaces(['node', 'pod'], async ({ node, pod }) => {
        const { ipam: own, ...rest } = staticConf(ipam ?? {}, more)
        const conf: Conf = { ...rest, ...(ipam && own ? { ipam: own } : {}) }
        await fails(node, { conf, args }, code, msg)
        // It is the runtime's to name a pool, and bridge's own to know MAC.
        if (ipam === null || args.startsWith('MAC')) return
        const before = await snapshot(node)
        const error = await network(node, { ...conf, type: 'bridge', bridge: 'br0', isGateway: true }).fails(
          'ADD',
          pod,
          { args },
        )
        assert.deepEqual([error.code, msg.test(error.msg)], [code, true], error.msg)
        assert.deepEqual([await snapshot(node), traces(pod, conf)], [before, []])
      }),
    )
  }

  it(
    'no address at all: a bridge says where one could have stood, and makes nothing; alone it answers as the reference does',
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      const conf = staticConf({ routes: [{ dst: '0.0.0.0/0' }] })
      const { status, stdout } = await call(node, { conf })
      assert.equal(status, 0, stdout)
      await asTheirs(node, stdout, { conf })
      for (const type of ['bridge', 'ptp']) {
        const before = await snapshot(node)
        const { code, msg } = await network(node, { ...conf, type }).fails('ADD', pod)
        assert.deepEqual(
          [
            code,
            /^Cannot read ipam\.addresses \[\]: want at least one, such as .* runtimeConfig\.ips, args\.cni\.ips, IP in CNI_ARGS$/.test(
              msg,
            ),
          ],
          [7, true],
          msg,
        )
        assert.equal(await snapshot(node), before)
      }
    }),
  )

  it(
    'DEL of what it never gave, and with a configuration that ADD refuses, succeeds; GC and STATUS have nothing to say',
    inNamespaces(['node'], async ({ node }) => {
      for (const ipam of [{ addresses: DUAL }, { addresses: [{ address: 'x' }] }])
        assert.deepEqual(outcome(await call(node, { command: 'DEL', conf: staticConf(ipam), args: 'IP=x' })), [
          0,
          '',
          '',
        ])
      const conf = { ...staticConf({ addresses: DUAL }), cniVersion: '1.1.0', 'cni.dev/valid-attachments': [] }
      for (const command of ['GC', 'STATUS'])
        assert.deepEqual(outcome(await call(node, { command, conf, containerId: null, ifname: null })), [0, '', ''])
    }),
  )
})

describe('static: CHECK', () => {
  const result = {
    cniVersion: '1.0.0',
    ips: [
      { address: '10.1.0.7/24', gateway: '10.1.0.1' },
      { address: 'fd00:1::7/64', gateway: 'fd00:1::1' },
    ],
  }
  it(
    'passes for what ADD gave; fails for an address that is missing, one more, another length, another gateway, and without prevResult',
    inNamespaces(['node'], async ({ node }) => {
      const conf = staticConf({ addresses: DUAL })
      const check = (more: object, args = '') => ({
        command: 'CHECK',
        conf: { ...conf, prevResult: result, ...more },
        args,
      })
      assert.deepEqual(outcome(await call(node, check({}))), [0, '', ''])
      await fails(
        node,
        check({ prevResult: { ...result, ips: result.ips.slice(0, 1) } }),
        999,
        /^Cannot confirm fd00:1::7\/64 on eth0 of container c1: it is not in the result of ADD$/,
      )
      await fails(
        node,
        check({ prevResult: { ...result, ips: [{ address: '10.1.0.7/16' }] } }),
        999,
        /^Cannot confirm 10\.1\.0\.7\/24 on eth0 of container c1: it is not in the result of ADD$/,
      )
      await fails(node, check({}, 'IP=10.2.0.7/24'), 999, /^Cannot confirm 10\.2\.0\.7\/24 on eth0/)
      await fails(
        node,
        check({ prevResult: { ...result, ips: [{ address: '10.1.0.7/24', gateway: '10.1.0.9' }] } }),
        999,
        /^Cannot confirm 10\.1\.0\.7\/24 on eth0 of container c1: ADD gave it the gateway 10\.1\.0\.9, want 10\.1\.0\.1$/,
      )
      await fails(node, check({ prevResult: undefined }), 7, /^Required prevResult missing$/)
    }),
  )

  it(
    'of a bridge over it fails when the configuration has another address by now',
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      const net = network(node, bridged({ addresses: DUAL }))
      const added = await net.add(pod)
      await net.check(pod, added)
      const { code, msg } = await net.fails('CHECK', pod, {
        conf: { ...net.conf, ipam: { type: 'static', addresses: [{ address: '10.1.0.8/24' }] }, prevResult: added },
      })
      assert.deepEqual(
        [code, msg],
        [999, `Cannot confirm 10.1.0.8/24 on eth0 of container ${containerId(pod)}: it is not in the result of ADD`],
      )
    }),
  )
})
