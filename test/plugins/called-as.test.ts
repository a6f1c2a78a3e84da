// lane: netns
// Tests plugins/index.ts: the name by which the executable is called.
import assert from 'node:assert/strict'
import { copyFileSync, mkdtempSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { inNamespaces, ping, plugin, until } from '../support/harness.ts'
import { bridgeConf, containerId, network, traces } from '../support/network.ts'

const DIST = join(import.meta.dir, '../../dist')
/** How a folder gets a plugin under another name. */
const WAYS: Readonly<Record<string, (dir: string, name: string, type: string) => void>> = {
  'a copy with a file beside it': (dir, name, type) => {
    copyFileSync(join(DIST, type), join(dir, name))
    writeFileSync(join(dir, `${name}.plugin`), `${type}\n`)
  },
  'a symbolic link to a plugin': (dir, name, type) => symlinkSync(join(DIST, type), join(dir, name)),
  'a symbolic link to a link beside it': (dir, name, type) => {
    copyFileSync(join(DIST, type), join(dir, 'all'))
    symlinkSync('all', join(dir, type))
    symlinkSync(type, join(dir, name))
  },
}

describe('a plugin under another name', () => {
  for (const [what, make] of Object.entries(WAYS))
    it(
      `${what}: bridge as cnv-bridge, with host-local as cnv-pool, works from ADD to DEL`,
      inNamespaces(['node', 'pod'], async ({ node, pod }) => {
        const dir = mkdtempSync('/run/bin-')
        make(dir, 'cnv-bridge', 'bridge')
        make(dir, 'cnv-pool', 'host-local')
        const conf = bridgeConf({ isGateway: true })
        const net = network(node, { ...conf, ipam: { ...conf.ipam, type: 'cnv-pool' } })
        const more = { file: join(dir, 'cnv-bridge'), path: dir }
        const result = await net.add(pod, more)
        await until(() => ping(pod, '10.1.0.1'))
        await net.check(pod, result, more)
        await net.del(pod, more)
        assert.deepEqual(traces(pod, net.conf), [])
        const { status, result: versions } = await plugin('bridge', { command: 'VERSION', ...more }, node)
        assert.deepEqual([status, versions['cniVersion']], [0, '1.1.0'])
      }),
    )

  it(
    'a copy that nothing explains answers with a CNI error of code 7 that says what it wants',
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      const dir = mkdtempSync('/run/bin-')
      copyFileSync(join(DIST, 'bridge'), join(dir, 'cnv-bridge'))
      for (const explained of [undefined, 'nonsense', '']) {
        if (explained !== undefined) writeFileSync(join(dir, 'cnv-bridge.plugin'), explained)
        for (const command of ['ADD', 'DEL', 'VERSION']) {
          const { status, error } = await plugin(
            'bridge',
            { command, conf: bridgeConf(), containerId: containerId(pod), netns: pod, file: join(dir, 'cnv-bridge') },
            node,
          )
          assert.deepEqual([status, error.code, error.msg], [1, 7, 'plumb has no plugin "cnv-bridge"'])
          assert.match(
            error.details,
            /^want a symbolic link to a plugin, or a file cnv-bridge\.plugin beside it that names one: /,
          )
        }
      }
      const { status, stdout, stderr } = await node.exec([join(dir, 'cnv-bridge')])
      assert.deepEqual([status, stdout], [1, ''])
      assert.match(stderr, /^plumb has no plugin "cnv-bridge": want /)
    }),
  )
})
