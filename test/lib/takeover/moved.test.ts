// lane: netns
// Tests lib/takeover.
import assert from 'node:assert/strict'
import { rmSync } from 'node:fs'
import { chain, good } from '../../support/chained.ts'
import { inNamespaces } from '../../support/harness.ts'
import { network } from '../../support/network.ts'

afterEach(() => rmSync('/run/cni', { recursive: true, force: true }))

describe('CHECK of a list whose later plugin moves routes', () => {
  it(
    'bridge does not miss the default routes that sbr has taken to a table of its own; sbr does, when they are gone; bridge does, when sbr has put them back and they are gone',
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      const net = chain(node, { type: 'sbr' })
      const prevResult = await net.add(pod)
      const bridge = network(node, net.bridge)
      assert.equal((await pod.exec(['ip', 'route', 'show', 'default'])).stdout, '')
      await bridge.check(pod, prevResult)
      good(await net.call('CHECK', pod, { prevResult }))
      await pod.exec(['ip', 'route', 'delete', 'default', 'table', '100'])
      assert.match((await net.call('CHECK', pod, { prevResult })).error.details, /route 0\.0\.0\.0\/0 .*is missing/)
      good(await net.call('DEL', pod, { prevResult }))
      await bridge.check(pod, prevResult)
      await pod.exec(['ip', 'route', 'delete', 'default'])
      assert.match(
        (await bridge.fails('CHECK', pod, { conf: { ...net.bridge, prevResult } })).msg,
        /route 0\.0\.0\.0\/0 in the pod is missing/,
      )
    }),
  )
})
