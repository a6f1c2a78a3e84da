// lane: netns
// Tests plugins/flannel.ts.
import assert from 'node:assert/strict'
import { readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { dirOf, ENV, fileOf, flannelConf, writeEnv } from '../../support/flannel.ts'
import { foreignPlugin } from '../../support/foreign-plugin.ts'
import { inNamespaces, ping, plugin, snapshot, until } from '../../support/harness.ts'
import { containerId, network, settled, traces } from '../../support/network.ts'

const ADDED = { cniVersion: '1.1.0', ips: [{ address: '10.1.17.2/24' }], someKey: { of: 'its maker' } }

describe('flannel: when things go wrong', () => {
  it(
    'ADD without a subnet.env waits for it, and goes on when it comes',
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      const conf = flannelConf('')
      const added = network(node, conf).add(pod)
      await until(() => readdirSync('/proc').some((pid) => /^\d+$/.test(pid) && commandOf(pid).endsWith('/flannel\0')))
      writeEnv(conf.subnetFile, ENV.v4)
      assert.equal((await added)['ips'][0].address, '10.1.17.2/24')
    }),
  )

  for (const [wait, keys] of [
    [0, { subnetWait: 0 }],
    [2, { subnetWait: 2 }],
    [10, {}],
  ] as const) {
    it(
      `ADD without a subnet.env gives up after ${wait} s${'subnetWait' in keys ? '' : ', the default'}, with code 11 and where to look, and nothing is made`,
      inNamespaces(['node', 'pod'], async ({ node, pod }) => {
        const conf = flannelConf('', keys)
        rmSync(conf.subnetFile)
        const before = await snapshot(node)
        const started = performance.now()
        const { code, msg, details } = await network(node, conf).fails('ADD', pod)
        const took = performance.now() - started
        assert.ok(took >= wait * 1000 && took < wait * 1000 + 5000, `${took} ms`)
        assert.deepEqual(
          [code, msg],
          [11, `Cannot attach to network ${conf.name} yet: ${conf.subnetFile} is not there`],
        )
        assert.match(details, new RegExp(`^waited ${wait} s; .*node agent.*plumb status`))
        assert.deepEqual([await snapshot(node), readdirSync(conf.dataDir), traces(pod, conf)], [before, [], []])
        await network(node, conf).del(pod)
      }),
    )
  }

  it(
    'a delegate that is another program: its failed ADD gets a DEL, unless the attachment stood before; what is kept follows',
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      const bridge = foreignPlugin({}, 'bridge')
      const net = network(node, flannelConf(ENV.v4))
      const path = bridge.dir
      const id = containerId(pod)
      const bad: Readonly<Record<string, () => void>> = {
        'an error': () => bridge.fail('ADD', 42, 'no'),
        'no JSON': () => bridge.answer('ADD', 'what?'),
        'no result': () => bridge.answer('ADD', '{"ips":[{"address":"x"}]}'),
      }
      for (const [what, prepare] of Object.entries(bad)) {
        prepare()
        bridge.forget()
        assert.equal((await net.fails('ADD', pod, { path })).code, what === 'an error' ? 42 : 999)
        assert.deepEqual([bridge.calls(), readdirSync(dirOf(net.conf))], [[`ADD ${id}`, `DEL ${id}`], []], what)
      }
      bridge.fail('DEL', 43, 'neither')
      await net.fails('ADD', pod, { path })
      assert.deepEqual(readdirSync(dirOf(net.conf)), [`${id}:eth0`])
      bridge.answer('DEL', '')
      await net.del(pod, { path })
      bridge.answer('ADD', JSON.stringify(ADDED))
      await net.add(pod, { path })
      const asked = readFileSync(fileOf(net.conf, pod), 'utf8')
      writeEnv(net.conf['subnetFile'] as string, ENV.dual)
      bridge.fail('ADD', 42, 'it is there')
      bridge.forget()
      await net.fails('ADD', pod, { path })
      assert.deepEqual([bridge.calls(), readFileSync(fileOf(net.conf, pod), 'utf8')], [[`ADD ${id}`], asked])
    }),
  )

  it(
    'CHECK is the delegate’s: a lost address is found; without what ADD kept the container is unknown',
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      const net = network(node, flannelConf(ENV.v4))
      const result = await net.add(pod)
      await net.check(pod, result)
      await pod.ip('addr', 'del', '10.1.17.2/24', 'dev', 'eth0')
      assert.match(
        (await net.fails('CHECK', pod, { conf: { ...net.conf, prevResult: result } })).msg,
        /^Cannot confirm eth0 of container \S+: /,
      )
      rmSync(fileOf(net.conf, pod))
      assert.equal((await net.fails('CHECK', pod, { conf: { ...net.conf, prevResult: result } })).code, 3)
    }),
  )

  it(
    'STATUS is 50 without a subnet.env and with one that cannot be read, then the delegate’s, and its pool’s',
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      const net = network(node, flannelConf(ENV.v4.replace('.1/24', '.1/30')))
      const file = net.conf['subnetFile'] as string
      const status = () =>
        plugin('flannel', { command: 'STATUS', conf: net.conf, containerId: null, ifname: null }, node)
      assert.equal((await status()).status, 0)
      await net.add(pod)
      assert.deepEqual(await status().then(({ error }) => [error.code, /10\.1\.17\.2/.test(error.msg)]), [50, true])
      writeEnv(file, 'FLANNEL_MTU=x\n')
      assert.match(
        await status().then(({ error }) => `${error.code} ${error.msg}`),
        /^50 Cannot read .*line 1: FLANNEL_MTU/,
      )
      rmSync(file)
      assert.deepEqual(await status().then(({ error }) => [error.code, error.msg]), [
        50,
        `Network ${net.conf.name} has no subnet yet: ${file} is not there`,
      ])
    }),
  )

  it(
    'GC asks the delegate to drop what is stale and forgets it, keeps what is valid and what is of another network, and goes on after a failure',
    inNamespaces(['node', 'pod', 'kept'], async ({ node, pod, kept }) => {
      const bridge = foreignPlugin({ ADD: ADDED }, 'bridge')
      const conf = flannelConf(ENV.v4)
      const path = bridge.dir
      const net = network(node, conf)
      const other = network(node, { ...conf, name: 'another' })
      for (const one of [pod, kept]) await net.add(one, { path })
      await other.add(pod, { path, ifname: 'net1' })
      writeFileSync(join(conf.dataDir, 'old'), JSON.stringify({ name: conf.name, type: 'bridge' }))
      writeFileSync(join(conf.dataDir, 'torn'), '{')
      const valid = [{ containerID: containerId(kept), ifname: 'eth0' }]
      const gc = () =>
        plugin(
          'flannel',
          {
            command: 'GC',
            conf: { ...conf, 'cni.dev/valid-attachments': valid },
            containerId: null,
            ifname: null,
            path,
          },
          node,
        )
      const rest = [`${containerId(kept)}:eth0`, `${containerId(pod)}:net1`, 'torn']
      bridge.forget()
      bridge.fail('DEL', 42, 'not now')
      assert.equal((await gc()).error.msg, 'not now')
      assert.deepEqual(readdirSync(conf.dataDir).sort(), [...rest, `${containerId(pod)}:eth0`].sort())
      bridge.answer('DEL', '')
      assert.equal((await gc()).stdout, '')
      assert.deepEqual(readdirSync(conf.dataDir).sort(), rest.sort())
      assert.deepEqual(bridge.calls(), [`DEL ${containerId(pod)}`, 'GC ', `DEL ${containerId(pod)}`, 'GC '])
      assert.deepEqual(JSON.parse(bridge.stdin('GC'))['cni.dev/valid-attachments'], valid)
    }),
  )

  it(
    'two pods attached at once to a node without its bridge, while subnet.env is rewritten again and again: both work',
    inNamespaces(['node', 'pod', 'peer'], async ({ node, pod, peer }) => {
      const conf = flannelConf(ENV.dual)
      const net = network(node, conf)
      const adds = Promise.all([net.add(pod), net.add(peer)])
      let rewritten = 0
      const isDone = adds.then(() => true)
      while (!(await Promise.race([isDone, Bun.sleep(1)])))
        writeEnv(conf.subnetFile, rewritten++ % 2 ? ENV.dual : `${ENV.dual}\n`)
      for (const { ips } of await adds)
        for (const { address } of ips) await until(() => ping(node, address.split('/')[0]))
      for (const one of [pod, peer]) await net.del(one)
      await settled(async () => readdirSync(conf.dataDir))
      assert.deepEqual([rewritten > 0, readdirSync(conf.dataDir)], [true, []])
    }),
  )
})

function commandOf(pid: string): string {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'utf8')
  } catch {
    return ''
  }
}
