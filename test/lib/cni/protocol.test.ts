// lane: netns
// Tests lib/cni and lib/verbs.
import assert from 'node:assert/strict'
import { mkdtempSync } from 'node:fs'
import { join } from 'node:path'
import { type Answer, type Call, inNamespaces, type Namespace, plugin, snapshot } from '../../support/harness.ts'
import { bridgeConf, network } from '../../support/network.ts'

const DIST = join(import.meta.dir, '../../../dist')
const PLUGINS = ['loopback', 'bridge', 'host-local']
const LO = { cniVersion: '1.1.0', name: 'lo', type: 'loopback' }
/** The environment of a call, by variable; `null` takes one away. */
const USUAL = { CNI_CONTAINERID: 'c1', CNI_NETNS: '/run/netns/pod', CNI_IFNAME: 'eth0', CNI_PATH: DIST }

describe('protocol: environment and standard input', () => {
  for (const type of PLUGINS) {
    it(
      `${type}: VERSION needs nothing but CNI_COMMAND`,
      inNamespaces(['node'], async ({ node }) => {
        const { status, stdout, stderr } = await node.exec([join(DIST, type)], { env: { CNI_COMMAND: 'VERSION' } })
        assert.deepEqual(
          { status, stdout, stderr },
          {
            status: 0,
            stdout:
              '{"cniVersion":"1.1.0","supportedVersions":["0.1.0","0.2.0","0.3.0","0.3.1","0.4.0","1.0.0","1.1.0"]}\n',
            stderr: '',
          },
        )
      }),
    )

    it(`${type}: VERSION answers although standard input never ends`, async () => {
      const child = Bun.spawn([join(DIST, type)], { env: { CNI_COMMAND: 'VERSION' }, stdin: 'pipe', stdout: 'pipe' })
      assert.equal(await child.exited, 0)
      assert.match(await child.stdout.text(), /^\{"cniVersion":"1.1.0"/)
    })

    it(
      `${type}: each required variable that is missing, and all of them, are named with code 4`,
      inNamespaces(['node'], async ({ node }) => {
        const needed: Record<string, readonly string[]> = {
          ADD: ['CNI_CONTAINERID', 'CNI_NETNS', 'CNI_IFNAME'],
          CHECK: ['CNI_CONTAINERID', 'CNI_NETNS', 'CNI_IFNAME'],
          DEL: ['CNI_CONTAINERID', 'CNI_IFNAME'],
        }
        for (const [command, names] of Object.entries(needed)) {
          for (const missing of [...names.map((name) => [name]), names]) {
            const { status, error } = await call(node, type, command, LO, {
              env: Object.fromEntries(missing.map((name) => [name, ''])),
            })
            assert.deepEqual(
              [status, error.code, error.msg],
              [1, 4, `required env variables [${missing.join(',')}] missing`],
            )
          }
        }
      }),
    )

    it(
      `${type}: what is not a JSON object has code 6, and shows what it begins with`,
      inNamespaces(['node', 'pod'], async ({ node, pod }) => {
        for (const text of ['', '{', 'nonsense', '{"name":"n"} {}', '[]', 'null', '"text"', '7', '{"name":\u0000}']) {
          for (const command of ['ADD', 'DEL', 'CHECK', 'GC', 'STATUS']) {
            const { status, error } = await call(node, type, command, text, { netns: pod })
            assert.deepEqual([status, error.code], [1, 6], `${command} ${text}`)
            assert.match(error.msg, /^Cannot read the configuration/)
          }
        }
      }),
    )

    it(
      `${type}: standard input that cannot be read has code 5`,
      inNamespaces(['node', 'pod'], async ({ node, pod }) => {
        for (const from of ['</', '0>/dev/null']) {
          const { status, stdout } = await node.exec(['sh', '-c', `exec ${join(DIST, type)} ${from}`], {
            env: { ...USUAL, CNI_COMMAND: 'ADD', CNI_NETNS: pod.path },
          })
          assert.deepEqual(
            [status, JSON.parse(stdout).code, JSON.parse(stdout).msg],
            [1, 5, 'Cannot read the configuration from stdin'],
          )
        }
      }),
    )

    it(
      `${type}: an unknown command has code 4; without a command it says what it is on stderr`,
      inNamespaces(['node'], async ({ node }) => {
        for (const command of ['FOO', 'add', 'ADD ', 'constructor', '__proto__']) {
          const { error } = await call(node, type, command, LO)
          assert.deepEqual(
            [error.code, error.msg, error.details],
            [4, `unknown CNI_COMMAND: "${command}"`, 'want one of ADD, CHECK, DEL, GC, STATUS, VERSION'],
          )
        }
        for (const env of [{}, { CNI_COMMAND: '' }]) {
          const { status, stdout, stderr } = await node.exec([join(DIST, type)], { env })
          assert.deepEqual([status, stdout], [0, ''])
          assert.match(
            stderr,
            new RegExp(`${type}[^]*CNI protocol versions supported: 0.1.0, 0.2.0, 0.3.0, 0.3.1, 0.4.0, 1.0.0, 1.1.0`),
          )
        }
      }),
    )

    it(
      `${type}: an unsupported version has code 1, and both sides stand in details`,
      inNamespaces(['node', 'pod'], async ({ node, pod }) => {
        for (const cniVersion of ['1.2.0', '0.5.0', '9.9.9', 'x', '1.1']) {
          const { error } = await call(node, type, 'ADD', { ...LO, cniVersion }, { netns: pod })
          assert.deepEqual(
            [error.code, error.details],
            [1, `config is "${cniVersion}", plugin supports ["0.1.0" "0.2.0" "0.3.0" "0.3.1" "0.4.0" "1.0.0" "1.1.0"]`],
          )
        }
      }),
    )

    it(
      `${type}: CHECK below 0.4.0, GC and STATUS below 1.1.0 have code 1`,
      inNamespaces(['node', 'pod'], async ({ node, pod }) => {
        for (const [command, versions] of Object.entries({
          CHECK: ['0.1.0', '0.3.1', undefined],
          GC: ['0.4.0', '1.0.0', undefined],
          STATUS: ['0.4.0', '1.0.0', undefined],
        })) {
          for (const cniVersion of versions) {
            const { error } = await call(node, type, command, { ...LO, cniVersion }, { netns: pod })
            assert.deepEqual([error.code, error.msg], [1, `config version does not allow ${command}`])
          }
        }
      }),
    )

    it(
      `${type}: a bad container id or interface name has code 4, a bad or missing network name code 7, and the value is shown`,
      inNamespaces(['node', 'pod'], async ({ node, pod }) => {
        const before = await snapshot(node)
        for (const containerId of ['-a', '.', 'a/b', 'a b', 'a\nb', 'ä', 'a"b'])
          await refused(
            { containerId },
            LO,
            4,
            `Cannot read CNI_CONTAINERID ${JSON.stringify(containerId)}: want a letter or digit, then letters, digits, "_", "." or "-"`,
          )
        for (const ifname of ['a'.repeat(16), '.', '..', 'a/b', 'a:b', 'a b', 'a\tb', 'a\nb', '\u00a0', 'a"b'])
          await refused(
            { ifname },
            LO,
            4,
            `Cannot read CNI_IFNAME ${JSON.stringify(ifname)}: want an interface name of 1 to 15 bytes without "/", ":" or blanks`,
          )
        for (const name of ['-a', 'a b', 'a/b', '../x', 'a\nb', 'ä', 7, {}, ['a']])
          await refused({}, { ...LO, name }, 7, 'invalid characters found in network name')
        for (const name of ['', null, undefined]) await refused({}, { ...LO, name }, 7, 'missing network name')
        assert.equal(await snapshot(node), before)
        async function refused(more: Partial<Call>, conf: object, code: number, msg: string): Promise<void> {
          for (const command of ['ADD', 'CHECK', 'DEL']) {
            const { status, error } = await call(node, type, command, conf, { netns: pod, ...more })
            assert.deepEqual([status, error.code, error.msg], [1, code, msg], command)
          }
        }
      }),
    )
  }

  it(
    'DEL without CNI_NETNS, and ADD, CHECK and DEL without CNI_PATH, are accepted where no delegate is needed',
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      const net = network(node, bridgeConf({ ipam: undefined }))
      const result = await net.add(pod, { path: null })
      await net.check(pod, result, { path: null })
      await net.del(pod, { path: null, netns: null })
      assert.deepEqual(await node.json('link', 'show', 'type', 'veth'), [])
      const { status, result: up } = await call(node, 'loopback', 'ADD', LO, { netns: pod, path: null })
      assert.deepEqual([status, up['interfaces'][0].name], [0, 'lo'])
    }),
  )

  it(
    'a configuration without cniVersion is one of 0.1.0',
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      for (const cniVersion of [undefined, '']) {
        const net = network(node, bridgeConf({ cniVersion }))
        const result = await net.add(pod)
        assert.deepEqual([result['cniVersion'], result['ip4'].ip], ['0.1.0', '10.1.0.2/24'])
        await net.del(pod)
      }
    }),
  )

  it(
    'an error is one JSON object on stdout with cniVersion, code and msg; what there is to log goes to stderr',
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      const bad = await call(node, 'bridge', 'ADD', bridgeConf({ cniVersion: '0.4.0', hairpinmod: true, mtu: -1 }), {
        netns: pod,
      })
      assert.deepEqual(JSON.parse(bad.stdout), {
        cniVersion: '0.4.0',
        code: 7,
        msg: 'Cannot read mtu -1: want a whole number, 0 to 65535',
      })
      const good = await call(node, 'bridge', 'ADD', bridgeConf({ hairpinmod: true }), { netns: pod })
      assert.equal(good.status, 0)
      assert.match(good.stderr, /^plumb: unknown key "hairpinmod", did you mean "hairpinMode"\? network=net\d+\n$/)
      // A failure without a code in the protocol: the tool's own words, and what was asked of it.
      const net = network(
        node,
        bridgeConf({
          ipam: {
            type: 'host-local',
            dataDir: mkdtempSync('/run/ipam-'),
            ranges: [[{ subnet: '10.1.0.0/24' }]],
            routes: [{ dst: '10.9.0.0/16', gw: '192.0.2.1' }],
          },
        }),
      )
      const { code, msg, details } = await net.fails('ADD', pod, { ifname: 'eth1' })
      assert.deepEqual([code, msg], [999, 'The kernel or a tool refused: Nexthop has invalid gateway.'])
      assert.equal(
        details,
        `ip in ${pod.path}: route prepend 10.9.0.0/16 via 192.0.2.1 dev eth1: Nexthop has invalid gateway.`,
      )
    }),
  )
})

function call(
  node: Namespace,
  type: string,
  command: string,
  conf: object | string,
  more: Partial<Call> = {},
): Promise<Answer> {
  return plugin(type, { command, conf, netns: USUAL.CNI_NETNS, ...more }, node)
}
