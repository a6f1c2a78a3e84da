// lane: peers
// Tests plugins, called by podman.
import assert from 'node:assert/strict'
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { execa } from 'execa'
import { IMAGE } from '../../support/image.ts'
import { WORLD } from '../../support/packets.ts'
import { nothingLeft, onPodman, type Podman, podmanHere, podmanOn } from '../../support/podman.ts'
import { reach, serve } from '../../support/servers.ts'

const DIST = join(import.meta.dir, '../../../dist')
describe('podman on plumb, when something goes wrong', () => {
  podmanHere()

  it(
    'a container that is killed, by podman and by somebody else, leaves nothing, and starts again',
    onPodman(async (podman, { world }) => {
      await podman.start('web', '--publish', '8080:80')
      await podman.works('kill', 'web')
      await nothingLeft(podman)
      await podman.works('start', 'web')
      process.kill(await pidOf(podman, 'web'), 'SIGKILL')
      await nothingLeft(podman)
      const { ns } = await podman.start('other', '--publish', '8080:80')
      await serve(ns, 'other', 'tcp 80')
      assert.equal(await reach(world, WORLD.node4, 8080), `other ${WORLD.world4}`)
    }),
  )

  it(
    'a container that died together with who watches it is removed by force, and nothing of it is left',
    onPodman(async (podman) => {
      await podman.start('web', '--publish', '8080:80')
      const { ConmonPidFile } = await podman.inspect('container', 'web')
      for (const pid of [Number(readFileSync(ConmonPidFile, 'utf8')), await pidOf(podman, 'web')])
        process.kill(pid, 'SIGKILL')
      assert.notDeepEqual(await podman.left(), [])
      // The first time podman sees that it is dead.
      await podman.call('rm', '--force', 'web')
      await podman.works('rm', '--force', '--ignore', 'web')
      assert.deepEqual(await podman.left(), [])
    }),
  )

  it(
    "a container whose namespace vanished: podman calls no plugin when it removes it, yet its host port can be had again, and plumb cni gc with podman's own list frees the rest",
    onPodman(async (podman, { node, world }) => {
      await podman.works('network', 'create', '--subnet', '10.89.7.0/24', 'one')
      const [lost, kept] = [
        await podman.start('lost', '--network', 'one', '--publish', '8080:80'),
        await podman.start('kept', '--network', 'one', '--publish', '8081:80'),
      ]
      await execa('umount', [lost.ns.path])
      rmSync(lost.ns.path)
      await podman.call('rm', '--force', 'lost')
      assert.match(JSON.stringify(await podman.left()), new RegExp(lost.id))
      const late = await podman.start('late', '--network', 'one', '--publish', '8080:80')
      const valid = (await podman.works('ps', '--no-trunc', '--format', '{{.ID}}:eth0')).split('\n')
      assert.deepEqual(valid.sort(), [`${kept.id}:eth0`, `${late.id}:eth0`].sort())
      const { status, stderr } = await node.exec([
        join(DIST, 'plumb'),
        'cni',
        'gc',
        'one',
        '--conf-dir',
        podman.networks,
        '--bin-dir',
        DIST,
        ...valid.flatMap((one) => ['--valid', one]),
      ])
      assert.deepEqual([status, stderr], [0, ''])
      assert.doesNotMatch(JSON.stringify(await podman.left()), new RegExp(lost.id))
      for (const [name, port, { ns }] of [['kept', 8081, kept] as const, ['late', 8080, late] as const]) {
        await serve(ns, name, 'tcp 80')
        assert.equal(await reach(world, WORLD.node4, port), `${name} ${WORLD.world4}`)
      }
      await podman.works('rm', '--force', 'kept', 'late')
      assert.deepEqual(await podman.left(), [])
    }),
  )

  it(
    'a host port that another container has: podman says whose, and what failed can be removed',
    onPodman(async (podman, { world }) => {
      const { id, ns } = await podman.start('web', '--publish', '8080:80')
      await serve(ns, 'web', 'tcp 80')
      const before = await podman.left()
      const said = await podman.fails('run', '--detach', '--name', 'late', '--publish', '8080:80', IMAGE)
      assert.match(said, /plugin portmap failed: .*8080/)
      assert.match(said, new RegExp(`${id}.*network "?podman`))
      assert.deepEqual(await podman.left(), before)
      await podman.works('rm', 'late')
      assert.equal(await reach(world, WORLD.node4, 8080), `web ${WORLD.world4}`)
      await podman.works('rm', '--force', 'web')
      assert.deepEqual(await podman.left(), [])
    }),
  )

  it(
    'a host port that a process of the node has: podman refuses it itself, when the network is made, and nothing of that is left',
    onPodman(async (podman, { node, world }) => {
      await serve(node, 'node', 'tcp 8080')
      assert.match(
        await podman.fails('run', '--detach', '--name', 'late', '--publish', '8080:80', IMAGE),
        /8080.*address already in use/,
      )
      await podman.works('rm', 'late')
      await nothingLeft(podman)
      assert.equal(await reach(world, WORLD.node4, 8080), `node ${WORLD.world4}`)
    }),
  )

  it(
    'an address that another container has: podman says whose, in the second of two networks too, and what failed can be removed',
    onPodman(async (podman) => {
      await podman.works('network', 'create', '--subnet', '10.89.7.0/24', 'one')
      const { id } = await podman.start('web', '--ip', '10.88.0.77')
      const before = await podman.left()
      const said = await podman.fails(
        'run',
        '--detach',
        '--name',
        'late',
        '--network',
        'one:ip=10.89.7.9',
        '--network',
        'podman:ip=10.88.0.77',
        IMAGE,
      )
      assert.match(said, /plugin bridge failed: .*10\.88\.0\.77/)
      assert.match(said, new RegExp(`eth0 of container ${id} has it`))
      assert.deepEqual(await podman.left(), before)
      await podman.works('rm', 'late')
      await podman.works('rm', '--force', 'web')
      assert.deepEqual(await podman.left(), [])
    }),
  )

  it(
    'VERSION, before anything else: each plugin of each list, with a dummy for every variable',
    onPodman(async (_, { node }) => {
      const log = mkdtempSync('/run/taps-')
      const podman = podmanOn(node, tapped(log, ['bridge', 'tuning', 'portmap']))
      listed(podman, '1.0.0')
      assert.match(await podman.works('network', 'ls'), /\bown\b/)
      const texts = readdirSync(log).map((name) => readFileSync(join(log, name), 'utf8'))
      const dummies =
        'CNI_ARGS=\nCNI_COMMAND=VERSION\nCNI_CONTAINERID=\nCNI_IFNAME=dummy\nCNI_NETNS=dummy\nCNI_PATH=dummy\n{"cniVersion":"1.0.0"}'
      assert.deepEqual(
        texts.map((text) => text.trim()).sort(),
        ['bridge', 'tuning'].map((type) => `${type}\n${dummies}`),
      )
    }),
  )

  it(
    'a list of a version that plumb has and podman has not: podman says so, and nothing is left of what was made',
    onPodman(async (podman) => {
      listed(podman, '1.1.0')
      assert.match(await podman.works('network', 'ls'), /\bown\b/)
      assert.match(await podman.fails('run', '--name', 'late', '--network', 'own', IMAGE), /1\.1\.0/)
      await podman.works('rm', 'late')
      assert.deepEqual(await podman.left(), [])
    }),
  )
})

function listed({ networks }: Podman, cniVersion: string): void {
  const plugins = [
    {
      type: 'bridge',
      bridge: 'own0',
      isGateway: true,
      ipam: { type: 'host-local', ranges: [[{ subnet: '10.90.0.0/24' }]] },
    },
    { type: 'tuning' },
  ]
  writeFileSync(join(networks, 'own.conflist'), JSON.stringify({ cniVersion, name: 'own', plugins }))
}

/** A folder of plugins which write down what they are given, a file for each call, before they do their work. */
function tapped(log: string, types: readonly string[]): string {
  const dir = mkdtempSync('/run/tapped-')
  for (const type of types) {
    const script = `#!/bin/sh\ninput=$(cat)\nfile=$(mktemp ${log}/XXXXXX)\n{ echo ${type}; env | grep ^CNI_ | sort; echo "$input"; } >$file\necho "$input" | exec ${DIST}/${type}\n`
    writeFileSync(join(dir, type), script, { mode: 0o755 })
  }
  return dir
}

async function pidOf(podman: Podman, name: string): Promise<number> {
  return (await podman.inspect('container', name))['State'].Pid
}
