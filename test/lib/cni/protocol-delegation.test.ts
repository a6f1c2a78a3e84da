// lane: netns
// Tests lib/cni and lib/verbs.
import assert from 'node:assert/strict'
import {
  chmodSync,
  copyFileSync,
  linkSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  rmSync,
  statSync,
  utimesSync,
  writeFileSync,
} from 'node:fs'
import { join } from 'node:path'
import { execa } from 'execa'
import { foreignPlugin } from '../../support/foreign-plugin.ts'
import { inNamespaces, plugin, type Row, snapshot } from '../../support/harness.ts'
import { bridgeConf, type Conf, containerId, mentions, network, traces } from '../../support/network.ts'

const DIST = join(import.meta.dir, '../../../dist')

describe('protocol: delegation', () => {
  it(
    'a process that another IPAM plugin leaves behind does not hold the lock of the call',
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      const pool = foreignPlugin({ ADD: { ips: [{ address: '10.1.0.7/24' }] } })
      const script = `#!/bin/sh
cat >/dev/null
sleep 600 >/dev/null 2>&1 &
echo $! >>'${pool.dir}/left'
[ "$CNI_COMMAND" = ADD ] && cat '${pool.dir}/answer.ADD'
exit 0
`
      writeFileSync(join(pool.dir, pool.type), script)
      const net = network(node, delegating(pool))
      const left = () => readFileSync(join(pool.dir, 'left'), 'utf8').trim().split('\n')
      try {
        await net.add(pod, { path: pool.dir })
        await net.del(pod, { path: pool.dir })
        for (const pid of left())
          assert.deepEqual(
            readdirSync(`/proc/${pid}/fd`).filter((fd) => readlinkSync(`/proc/${pid}/fd/${fd}`).endsWith('/busy')),
            [],
          )
      } finally {
        for (const pid of left()) process.kill(Number(pid))
      }
    }),
  )

  it(
    'GC and STATUS run the pool with the same standard input; GC goes on after the pool failed, and reports it',
    inNamespaces(['node', 'pod', 'kept'], async ({ node, pod, kept }) => {
      const pool = foreignPlugin({ ADD: { ips: [{ address: '10.1.0.7/24' }] } })
      const net = network(node, delegating(pool))
      const path = pool.dir
      await net.add(pod, { path })
      await net.add(kept, { path })
      const conf = JSON.stringify({
        ...net.conf,
        'cni.dev/valid-attachments': [{ containerID: containerId(kept), ifname: 'eth0' }],
        unknownToUs: [1, 'ü'],
      })
      const status = await plugin('bridge', { command: 'STATUS', conf, path, containerId: null, ifname: null }, node)
      assert.deepEqual([status.status, pool.stdin('STATUS')], [0, conf])
      pool.fail('GC', 42, 'the pool is on fire')
      const gc = await plugin('bridge', { command: 'GC', conf, path, containerId: null, ifname: null }, node)
      assert.deepEqual([gc.status, gc.error.code, gc.error.msg, pool.stdin('GC')], [1, 42, 'the pool is on fire', conf])
      assert.equal((await node.json('link', 'show', 'master', 'br0')).length, 1)
      pool.fail('STATUS', 50, 'no address left')
      const full = await plugin('bridge', { command: 'STATUS', conf, path, containerId: null, ifname: null }, node)
      assert.deepEqual([full.status, full.error.code, full.error.msg], [1, 50, 'no address left'])
    }),
  )

  it(
    'STATUS of host-local and of a bridge over it says when the pool is full, GC frees it, and STATUS is content again',
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      const net = network(node, bridgeConf({}, '10.1.0.0/30'))
      await net.add(pod)
      for (const type of ['bridge', 'host-local']) {
        const { status, error } = await plugin(
          type,
          { command: 'STATUS', conf: net.conf, containerId: null, ifname: null },
          node,
        )
        assert.deepEqual([status, error.code], [1, 50])
        assert.match(error.msg, /10\.1\.0\.2/)
      }
      await net.gc()
      assert.equal(
        (await plugin('bridge', { command: 'STATUS', conf: net.conf, containerId: null, ifname: null }, node)).status,
        0,
      )
    }),
  )

  it(
    'a pool that is not found is named with the directories; its stderr reaches ours, its code and words are kept',
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      const pool = foreignPlugin({})
      const net = network(node, { ...delegating(pool), ipam: { type: 'nowhere' } })
      for (const command of ['ADD', 'CHECK']) {
        const { code, msg, details } = await net.fails(command, pod, {
          path: `${pool.dir}:/opt/none`,
          conf: { ...net.conf, prevResult: {} },
        })
        assert.deepEqual(
          [code, msg, details],
          [7, 'Cannot find the IPAM plugin "nowhere"', `looked in ${pool.dir}, /opt/none (CNI_PATH)`],
        )
      }
      for (const type of ['../pool', '/bin/sh', 'a b', '']) {
        const { status, stderr } = await plugin(
          'bridge',
          { command: 'ADD', conf: { ...net.conf, ipam: { type } }, path: pool.dir, netns: pod },
          node,
        )
        assert.equal(status, type === '' ? 0 : 1, stderr)
      }
      assert.equal((await net.fails('DEL', pod, { containerId: 'c9' })).msg, 'Cannot find the IPAM plugin "nowhere"')
      assert.deepEqual(mentions(/\bc9\b/, '/run/cni'), [])
      pool.fail('ADD', 123, 'come back tomorrow')
      const answer = await plugin(
        'bridge',
        { command: 'ADD', conf: delegating(pool), path: pool.dir, containerId: containerId(pod), netns: pod },
        node,
      )
      assert.deepEqual([answer.status, answer.error.code, answer.error.msg], [1, 123, 'come back tomorrow'])
      assert.match(answer.stderr, /^pool: ADD$/m)
    }),
  )

  it(
    "when the pool's ADD fails, or its answer cannot be read, it gets a DEL, and nothing is left",
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      const pool = foreignPlugin({})
      const net = network(node, delegating(pool))
      const before = await snapshot(node)
      const bad: Record<string, () => void> = {
        'an error': () => pool.fail('ADD', 11, 'not now'),
        'no JSON': () => pool.answer('ADD', 'what?'),
        'no addresses that are any': () =>
          pool.answer('ADD', '{"cniVersion":"1.1.0","ips":[{"address":"10.1.0.2/240"}]}'),
        'two objects': () => pool.answer('ADD', '{"ips":[]}{"code":8}'),
        'no address': () => pool.answer('ADD', '{"cniVersion":"1.1.0","ips":[]}'),
      }
      for (const [what, prepare] of Object.entries(bad)) {
        prepare()
        pool.forget()
        const { msg } = await net.fails('ADD', pod, { path: pool.dir })
        if (what === 'no address') assert.equal(msg, 'IPAM plugin returned missing IP config')
        assert.deepEqual(pool.calls(), [`ADD ${containerId(pod)}`, `DEL ${containerId(pod)}`], what)
        assert.equal(await snapshot(node), before)
        assert.deepEqual(await pod.json('link', 'show', 'type', 'veth'), [])
      }
    }),
  )

  it(
    'a pool by the name of one of ours, but another program, is run as a program',
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      const pool = foreignPlugin(
        { ADD: { cniVersion: '1.1.0', ips: [{ address: '10.7.0.7/24', gateway: '10.7.0.1' }] } },
        'host-local',
      )
      const net = network(node, bridgeConf({ isGateway: true }))
      const result = await net.add(pod, { path: `${pool.dir}:${DIST}` })
      assert.deepEqual(
        result['ips'].map((ip: Row) => ip['address']),
        ['10.7.0.7/24'],
      )
      assert.deepEqual(pool.calls(), [`ADD ${containerId(pod)}`])
    }),
  )

  for (const [cniVersion, kept] of [
    ['0.2.0', ['172.31.0.0/16 main']],
    ['0.3.0', ['172.31.0.0/16 100', 'default main']],
  ] as const) {
    it(
      `a pool in this process answers in CNI ${cniVersion}, as one that is a program would: ${cniVersion === '0.3.0' ? 'tables of routes and routes of either family are kept' : 'of a route its table is lost, and the whole of one whose family has no address'}`,
      inNamespaces(['node', 'pod'], async ({ node, pod }) => {
        const routes = [{ dst: '172.31.0.0/16', table: 100 }, { dst: '::/0' }]
        const conf = bridgeConf({ cniVersion })
        await network(node, { ...conf, ipam: { ...conf.ipam, routes } }).add(pod)
        const made = (
          await Promise.all(
            ['-4', '-6'].map((family) => pod.json(family, 'route', 'show', 'table', 'all', 'protocol', 'boot')),
          )
        ).flat()
        assert.deepEqual(
          made.map(({ dst, table = 'main' }) => `${dst} ${table}`),
          kept,
        )
      }),
    )
  }

  it(
    'a hard link to our executable elsewhere is our pool, and works',
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      const dir = mkdtempSync(join(DIST, '.link-'))
      linkSync(join(DIST, 'bridge'), join(dir, 'host-local'))
      try {
        const net = network(node, bridgeConf())
        assert.equal((await net.add(pod, { path: dir }))['ips'][0].address, '10.1.0.2/24')
        await net.del(pod, { path: dir })
        assert.deepEqual(traces(pod, net.conf), [])
      } finally {
        rmSync(dir, { recursive: true })
      }
    }),
  )
})

describe('a copy of our executable', () => {
  it(
    'with the same time is our pool, and works in this process; with another time it is another program',
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      const dir = mkdtempSync(join(DIST, '.copy-'))
      const [from, to] = [join(DIST, 'bridge'), join(dir, 'host-local')]
      copyFileSync(from, to)
      // Nobody can start it.
      chmodSync(to, 0o644)
      try {
        const net = network(node, bridgeConf())
        const { mtime } = statSync(from)
        utimesSync(to, mtime, new Date(mtime.getTime() + 1000))
        assert.match((await net.fails('ADD', pod, { path: dir })).msg, /cannot be started: posix_spawn: EACCES/)
        await execa('touch', ['-r', from, to])
        assert.equal((await net.add(pod, { path: dir }))['ips'][0].address, '10.1.0.2/24')
        await net.del(pod, { path: dir })
      } finally {
        rmSync(dir, { recursive: true })
      }
    }),
  )
})

function delegating(pool: { readonly type: string }): Conf {
  return { ...bridgeConf(), ipam: { type: pool.type } }
}
