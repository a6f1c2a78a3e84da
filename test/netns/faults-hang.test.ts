import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { inNamespaces, ping, plugin, until } from '../harness.ts'
import { bridgeConf, containerId, network, traces } from '../network.ts'
import { shimmed } from '../shim.ts'

// A file of its own, because it waits for the limit of lib/exec.ts, 30 s, beside the others.
describe('a tool that hangs', () => {
  it(
    'is killed after 30 s: ADD names it and leaves nothing',
    inNamespaces(['node', 'pod'], async ({ node, pod }, test) => {
      test.timeout(90_000)
      const net = network(node, bridgeConf({ isDefaultGateway: true, ipMasq: true }, '10.1.0.0/24', 'fd00:1::/64'))
      const { file, dir } = shimmed('bridge', { nft: 'echo $$ > "$dir/pid"; exec sleep 600' })
      const started = performance.now()
      const { status, error } = await plugin('bridge', { command: 'ADD', conf: net.conf, containerId: containerId(pod), netns: pod, file }, node)
      const seconds = (performance.now() - started) / 1000
      assert.deepEqual([status, error.code, error.msg], [1, 11, 'Cannot wait for nft -f -: it was killed after 30 s'])
      assert.ok(seconds >= 29 && seconds < 60, `${seconds} s`)
      assert.throws(() => process.kill(Number(readFileSync(`${dir}/pid`, 'utf8')), 0), /ESRCH/)
      assert.deepEqual([await node.json('link', 'show', 'type', 'veth'), traces(pod, net.conf)], [[], []])
      await net.add(pod)
      await until(() => ping(pod, '10.1.0.1'))
    }),
  )
})
