// lane: long
// Tests lib/os.
import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { inNamespaces, ping, plugin, until } from '../../support/harness.ts'
import { portNetwork } from '../../support/host-ports.ts'
import { bridgeConf, containerId, network, traces } from '../../support/network.ts'
import { CHAIN, clear, onStage, SCENES, type Scene, unchanged, unlinked } from '../../support/plugin-scenes.ts'
import { type Any, shimmed } from '../../support/tool-shims.ts'

/** A call has 30 s for all that it waits for, 10 s more to take back what it made, and work that waits for nothing. */
const BOUND_S = 55

// A file of its own, because it waits for the limit of a call, 30 s, beside the others.
describe('a tool that hangs', () => {
  it(
    'is killed after 30 s: ADD names it and leaves nothing',
    inNamespaces(['node', 'pod'], async ({ node, pod }, test) => {
      test.timeout(90_000)
      const net = network(node, bridgeConf({ isDefaultGateway: true, ipMasq: true }, '10.1.0.0/24', 'fd00:1::/64'))
      const { file, dir } = shimmed('bridge', { nft: 'echo $$ > "$dir/pid"; exec sleep 600' })
      const started = performance.now()
      const { status, error } = await plugin(
        'bridge',
        { command: 'ADD', conf: net.conf, containerId: containerId(pod), netns: pod, file },
        node,
      )
      const seconds = (performance.now() - started) / 1000
      assert.deepEqual([status, error.code], [1, 11])
      assert.match(error.msg, /^Cannot wait for nft -f -: it was killed after (2\d|30) s$/)
      assert.ok(seconds >= 25 && seconds < BOUND_S, `${seconds} s`)
      assert.throws(() => process.kill(Number(readFileSync(`${dir}/pid`, 'utf8')), 0), /ESRCH/)
      assert.deepEqual([await node.json('link', 'show', 'type', 'veth'), traces(pod, net.conf)], [[], []])
      await net.add(pod)
      await until(() => ping(pod, '10.1.0.1'))
    }),
  )

  it('in any plugin: ADD and DEL end in bounded time and name it, and the next DEL leaves nothing', async function () {
    this.timeout(280_000)
    const all = Object.values(SCENES).flatMap((scene) =>
      scene.list.flatMap(({ type }, at) => (scene.tools[type] ?? []).map((tool) => ({ scene, at, tool }))),
    )
    // All at once: they do nothing but wait.
    await Promise.all(
      all.flatMap(({ scene, at, tool }) =>
        (scene === SCENES[CHAIN] ? ['ADD', 'DEL'] : ['ADD']).map((command) =>
          hung(scene, command, at, tool).call(this),
        ),
      ),
    )
  })

  it(
    'before it has read what does not fit into a pipe is killed after 30 s, too',
    inNamespaces(['node', 'pod'], async ({ node, pod }, test) => {
      test.timeout(150_000)
      const net = portNetwork(node)
      const prevResult = await net.add(pod, [])
      const { file } = unread('portmap', 'nft')
      const started = performance.now()
      const answer = await net.call(
        'ADD',
        pod,
        { prevResult, runtimeConfig: { portMappings: [{ hostPort: 10_000, containerPort: 10_000, range: 400 }] } },
        { file },
      )
      const seconds = (performance.now() - started) / 1000
      clear(answer, /Cannot wait for nft -f -: it was killed after \d+ s/)
      assert.ok(seconds >= 25 && seconds < BOUND_S, `${seconds} s`)
      await net.del(pod)
    }),
  )
})

function hung(scene: Scene, command: string, at: number, tool: Any): (this: Mocha.Context) => Promise<void> {
  return onStage(scene, async (stage) => {
    const about = `${command} of ${stage.confs[at]?.['type']} with ${tool}`
    const before = await stage.look()
    const given = await stage.addUpTo(command === 'ADD' ? at : stage.confs.length)
    const middle = await stage.look()
    for (let i = stage.confs.length - 1; command === 'DEL' && i > at; i--)
      assert.equal((await stage.call('DEL', i)).status, 0)
    const started = performance.now()
    const answer = await stage.call(command, at, command === 'ADD' ? given : undefined, { [tool]: 'exec sleep 600' })
    const seconds = (performance.now() - started) / 1000
    assert.ok(seconds < BOUND_S, `${about}: ${seconds} s`)
    if (command === 'ADD' || answer.status !== 0)
      clear(answer, new RegExp(`Cannot wait for ${tool}\\b.*it was killed after \\d+ s`))
    // What a hung tool kept from being taken back, DEL takes back.
    if (command === 'ADD') await unlinked(stage, middle, `${about}: what it left`)
    await stage.del()
    await unchanged(stage, before, `${about}: what DEL left`)
  })
}

// One that does not even look at its input.
function unread(type: string, tool: Any) {
  const shim = shimmed(type, { [tool]: '' }, `printf '#!/bin/sh\\nexec sleep 600\\n' > "$(dirname "$0")/tools/${tool}"`)
  return shim
}
