// lane: netns
// needs: systemd
// Tests agent/bgp/bird.ts and conf/plumb-agent.service: a real systemd as the first process of a node, and what BIRD
// does when it stops the agent.
import assert from 'node:assert/strict'
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { basename, join } from 'node:path'
import { execa } from 'execa'
import { present } from '../../../scripts/packages.ts'
import { type BgpScene, endBird, established, torConf, WITH_TOR, WORLD, withBgp } from '../../support/bgp.ts'
import { flows } from '../../support/flows.ts'
import { until } from '../../support/harness.ts'
import { skip } from '../../support/skip.ts'

const ROOT = join(import.meta.dir, '../../..')
const SYSTEMD = '/lib/systemd/systemd'
// The control groups are below one of the test, so that nothing of it is left. systemd gets a folder of its own below
// /run, and no units but those of the test.
const BOOT = `
groups=$1 units=$2 name=$3
mkdir -p "$groups" /run/systemd
mount -t cgroup2 none "$groups"
mkdir "$groups/$name"
echo 0 >"$groups/$name/cgroup.procs"
exec unshare --cgroup --mount --pid --fork --mount-proc --kill-child=KILL --propagation private sh -ec '
umount -R "$0"; umount -R /sys/fs/cgroup 2>/dev/null || true
mount -t cgroup2 none /sys/fs/cgroup
mount -t tmpfs tmpfs /run/systemd
exec env -i container=test SYSTEMD_UNIT_PATH="$1" PATH=/usr/sbin:/usr/bin:/sbin:/bin ${SYSTEMD} --system --unit=node.target --log-target=console --show-status=no
' "$groups" "$units"`

interface Booted {
  systemctl(...words: readonly string[]): Promise<string>
  end(): Promise<void>
}

/** Starts systemd on the node, with the unit of the agent as the package has it. */
async function boot({ nodes, dir }: BgpScene): Promise<Booted> {
  const [node] = nodes
  assert.ok(node)
  const [units, groups, name] = [join(dir, 'units'), join(dir, 'groups'), `plumb-${basename(dir)}`]
  mkdirSync(units)
  const unit = readFileSync(join(ROOT, 'conf/plumb-agent.service'), 'utf8')
    .replace(/^ExecStart=.*$/m, `ExecStart=${join(ROOT, 'dist/plumb')} agent ${node.options.join(' ')}`)
    // The files of the test are in /tmp.
    .replace(/^PrivateTmp=.*$/m, '')
  writeFileSync(join(units, 'plumb-agent.service'), unit)
  for (const target of ['sysinit', 'basic', 'shutdown', 'node'])
    writeFileSync(join(units, `${target}.target`), '[Unit]\nDefaultDependencies=no\n')
  const words = [`--net=${node.ns.path}`, '--', 'unshare', '--mount', '--propagation', 'private']
  const child = Bun.spawn(['nsenter', ...words, 'sh', '-ec', BOOT, 'sh', groups, units, name], {
    stdio: ['ignore', 'ignore', Bun.file(join(dir, 'systemd.log'))],
  })
  const pid = await until(async () => {
    if (child.exitCode !== null) throw new Error(readFileSync(join(dir, 'systemd.log'), 'utf8'))
    const { stdout } = await execa('pgrep', ['-f', `^${SYSTEMD} --system --unit=node`], { reject: false })
    return stdout.split('\n')[0]
  }, 20_000)
  const within = (...argv: readonly string[]) =>
    execa('nsenter', [`--target=${pid}`, '--mount', '--pid', '--cgroup', '--', ...argv], { reject: false, all: true })
  await until(async () => (await within('systemctl', 'is-active', 'node.target')).stdout === 'active', 30_000)
  return {
    async systemctl(...words) {
      const { exitCode, all } = await within('systemctl', ...words)
      const seen = exitCode === 0 ? '' : (await within('systemctl', 'status', 'plumb-agent', '--no-pager')).all
      assert.equal(exitCode, 0, `systemctl ${words.join(' ')}: ${all}\n${seen}`)
      return all ?? ''
    },
    async end() {
      process.kill(Number(pid), 'SIGKILL')
      await child.exited
      // Its process ids are those of a namespace that is gone.
      rmSync(join(node.dir, 'bird/bird.pid'), { force: true })
      await until(async () => {
        const script = 'mount -t cgroup2 none "$0"; find "$0/$1" -depth -type d -exec rmdir {} +'
        return (await execa('unshare', ['--mount', 'sh', '-c', script, groups, name], { reject: false })).exitCode === 0
      }, 20_000)
    },
  }
}

describe('BGP under systemd', () => {
  before(function () {
    if (!present(SYSTEMD) || !present('systemd-run')) skip(this as unknown as Mocha.Context, 'no systemd')
  })

  it(
    'a restart, an upgrade and a stop of the unit leave BIRD and its sessions, and no packet between pod and world is lost',
    withBgp({ count: 1, yaml: WITH_TOR, tor: torConf({ nodes: [1], routes: ['0.0.0.0/0'] }) }, async (scene) => {
      const { agents, nodes, pods, world, routes } = scene
      const [node, pod, agent] = [nodes[0], pods[0], agents[0]]
      assert.ok(node && pod && agent)
      await agent.stop()
      await endBird(node)
      const booted = await boot(scene)
      try {
        await booted.systemctl('start', 'plumb-agent')
        await agent.ready(30_000).catch(() => {})
        const { pid, sessions } = await established(agent, ['tor'], 60_000)
        const since = sessions[0]?.since
        assert.match(
          await booted.systemctl('list-units', '--type=scope'),
          /plumb-bird-\S+\.scope .*running BIRD of the/,
        )
        const dst = pod.ip.replace(/\d+$/, '0/24')
        await until(async () => (await routes(dst)) !== '')
        const going = await flows(world, pod.ns, [WORLD, pod.ip])
        const started = async () => (await agent.status())?.started ?? 0
        for (const verb of ['restart', 'kill', 'stop']) {
          const before = await started()
          await booted.systemctl(verb, ...(verb === 'kill' ? ['--signal=SIGKILL'] : []), 'plumb-agent')
          if (verb === 'stop') {
            assert.match(await routes(dst), /via 172\.30\.0\.1/)
            await booted.systemctl('start', 'plumb-agent')
          }
          await until(async () => (await started()) > before, 30_000)
          const now = await established(agent, ['tor'], 60_000)
          assert.deepEqual([now.pid, now.restarts, now.sessions[0]?.since], [pid, 0, since], verb)
        }
        assert.match(await routes(dst), /via 172\.30\.0\.1/)
        const { broken, lost, echoed } = await going.end()
        assert.deepEqual({ broken, lost }, { broken: '', lost: 0 })
        assert.ok(echoed > 0)
        await booted.systemctl('stop', 'plumb-agent')
      } finally {
        await booted.end()
      }
    }),
  )
})
