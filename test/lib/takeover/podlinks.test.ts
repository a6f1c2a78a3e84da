// lane: peers
// needs: reference
// Tests lib/takeover and plugins, with pods of the reference plugins.
import assert from 'node:assert/strict'
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { references } from '../../../scripts/peers.ts'
import { type Namespace, plugin, type Row } from '../../support/harness.ts'
import { hasKind } from '../../support/kinds.ts'
import { lanConf, linksOf, onLan } from '../../support/lan.ts'
import { type Conf, containerId, network, traces } from '../../support/network.ts'
import { skip } from '../../support/skip.ts'

const KEYS: Readonly<Record<string, object>> = {
  macvlan: { master: 'eth1' },
  tap: { owner: 7 },
  ipvlan: { master: 'eth1' },
  vlan: { master: 'eth1', vlanId: 5 },
  dummy: {},
}

describe('links that stand in a pod: plumb and the reference plugins take over from each other', () => {
  for (const [type, keys] of Object.entries(KEYS))
    it(
      `${type}: CHECK and DEL by plumb of what a reference plugin made, and the other way round, leave nothing; a DEL of another attachment leaves it alone`,
      onLan(['pod'], async ({ node, pod }, test) => {
        const found = references().filter(({ path }) => existsSync(join(path, type)))
        if (found.length === 0) skip(test, `no reference plugin ${type}`)
        if (type !== 'tap' && !hasKind(type)) skip(test, `this kernel has no ${type}`)
        for (const { path } of found) {
          const conf = lanConf(type, { cniVersion: '1.0.0', ...keys })
          const net = network(node, conf)
          const theirs = (command: string, more: object = {}) =>
            called(type, command, { ...conf, ...more }, path, { node, pod })
          const made = await theirs('ADD')
          await net.check(pod, made)
          assert.match((await net.fails('ADD', pod)).msg, /a link of that name is there already/)
          // As after a reboot of the node's memory of it: nothing was noted.
          await network(node, lanConf(type, keys)).del(pod, { ifname: 'eth5' })
          assert.equal((await linksOf(pod)).length, 1)
          await theirs('DEL')
          await theirs('ADD')
          const other = network(node, { ...conf, name: `${conf.name}-other` })
          await other.fails('ADD', pod)
          await other.del(pod)
          assert.equal((await linksOf(pod)).length, 1)
          await theirs('DEL')
          await net.del(pod)
          await theirs('ADD')
          await net.del(pod)
          assert.deepEqual([await linksOf(pod), traces(pod, conf)], [[], []])
          const ours = await net.add(pod)
          await theirs('CHECK', { prevResult: ours })
          await theirs('DEL')
          await net.del(pod)
          assert.deepEqual([await linksOf(pod), traces(pod, conf)], [[], []])
        }
      }),
    )
})

async function called(
  type: string,
  command: string,
  conf: Conf,
  dir: string,
  { node, pod }: Record<'node' | 'pod', Namespace>,
): Promise<Row> {
  const { status, stdout, stderr, result } = await plugin(
    type,
    { command, conf, containerId: containerId(pod), netns: pod, path: dir, file: join(dir, type) },
    node,
  )
  assert.equal(status, 0, `${command} by the reference: ${stdout}${stderr}`)
  return result
}
