// lane: netns
// Tests cli.
import assert from 'node:assert/strict'
import { existsSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { inNamespaces, type Row } from '../support/harness.ts'
import { mentions } from '../support/network.ts'
import { type Desk, makeDesk, netConf, PLUGINS } from '../support/node-by-hand.ts'
import { skip } from '../support/skip.ts'

const DIST = join(import.meta.dir, '../../dist')

describe('plumb cni', () => {
  let desk: Desk
  beforeEach(function () {
    if (!existsSync(`${PLUGINS}/bridge`)) skip(this, `no reference plugins in ${PLUGINS}`)
    desk = makeDesk()
  })
  afterEach(() => desk?.remove())

  it(
    'add, check, list and del go through a reference plugin and leave nothing',
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      const name = pod.path.replace('/run/netns/', '')
      const added = await desk.plumb(node, ['add', 'net', name])
      assert.match(
        added.stdout,
        new RegExp(`^attached ${pod.path} to net as eth0: 10\\.9\\.0\\.2/24 \\(container cnitool-[0-9a-f]{20}\\)\n$`),
        added.stderr,
      )
      assert.equal((await pod.json('addr', 'show', 'eth0'))[0]?.['addr_info'][0].local, '10.9.0.2')
      assert.match(
        (await desk.plumb(node, ['check', 'net', pod.path])).stdout,
        /^eth0 of cnitool-\w+ on net is as it should be\n$/,
      )
      const [row] = JSON.parse((await desk.plumb(node, ['list', '--json'])).stdout)
      assert.deepEqual(
        { ...row, containerId: '' },
        { network: 'net', containerId: '', ifname: 'eth0', netns: pod.path, addresses: ['10.9.0.2/24'] },
      )
      assert.match(
        (await desk.plumb(node, ['list', 'net'])).stdout,
        new RegExp(
          `^NETWORK +CONTAINER +IFNAME +ADDRESSES +NETNS\nnet +cnitool-\\w+ +eth0 +10\\.9\\.0\\.2/24 +${pod.path}\n$`,
        ),
      )
      assert.match((await desk.plumb(node, ['del', 'net', pod.path])).stdout, /^detached eth0 of cnitool-/)
      assert.equal((await desk.plumb(node, ['list'])).stdout, 'no attachment in /var/lib/cni/results\n')
      assert.deepEqual(desk.reserved(), [])
      assert.equal((await desk.plumb(node, ['del', 'net', pod.path])).status, 0)
    }),
  )
  it(
    'del works without NETNS, without the network’s file, and when the namespace is gone',
    inNamespaces(['node', 'pod', 'other'], async ({ node, pod, other }) => {
      assert.equal((await desk.plumb(node, ['add', 'net', pod.path, '--container-id', 'c1'])).status, 0)
      assert.equal((await desk.plumb(node, ['add', 'net', other.path, '--ifname', 'net1'])).status, 0)
      rmSync(`${desk.dir}/conf/10-net.conflist`)
      const done = await desk.plumb(node, ['del', 'net', '--container-id', 'c1'])
      assert.equal(done.status, 0, done.stderr)
      assert.equal((await pod.json('link')).length, 1)
      await node.ip('netns', 'delete', other.path.replace('/run/netns/', ''))
      assert.equal((await desk.plumb(node, ['del', 'net', other.path, '-i', 'net1'])).status, 0)
      assert.deepEqual([desk.reserved(), readdirSync('/var/lib/cni/results')], [[], []])
    }),
  )
  it(
    'gc refuses an empty list, shows with --dry-run, and removes what is not listed',
    inNamespaces(['node', 'pod', 'other'], async ({ node, pod, other }) => {
      for (const [{ path }, id] of [
        [pod, 'keep'],
        [other, 'stale'],
      ] as const)
        assert.equal((await desk.plumb(node, ['add', 'net', path, '--container-id', id])).status, 0)
      writeFileSync(`${desk.dir}/empty`, '# nothing\n\n')
      for (const flags of [
        ['--valid-file', `${desk.dir}/empty`],
        ['--all', '--valid', 'keep:eth0'],
        ['--valid', 'keep'],
        ['--valid-file', `${desk.dir}/none`],
      ]) {
        const refused = await desk.plumb(node, ['gc', 'net', ...flags])
        assert.equal(refused.status, 2, flags.join(' '))
      }
      const dry = await desk.plumb(node, ['gc', 'net', '--all', '--dry-run'])
      assert.match(
        dry.stdout,
        /^would remove 2 of net that are not in use.*\n {2}keep:eth0 {2}10\.9\.0\.2\/24\n {2}stale:eth0 {2}10\.9\.0\.3\/24\n$/,
      )
      assert.equal(Object.keys(desk.cached()).length, 2)
      writeFileSync(`${desk.dir}/valid`, '[{"containerID":"keep","ifname":"eth0"}]')
      assert.match(
        (await desk.plumb(node, ['gc', 'net', '--valid-file', `${desk.dir}/valid`])).stdout,
        /^removed 1 of net that is not in use.*\n {2}stale:eth0/,
      )
      assert.deepEqual([Object.keys(desk.cached()), desk.reserved()], [['net-keep-eth0'], ['10.9.0.2']])
      writeFileSync(`${desk.dir}/valid`, 'keep:eth0 # the pod\n')
      assert.deepEqual(
        JSON.parse((await desk.plumb(node, ['gc', 'net', '--valid-file', `${desk.dir}/valid`, '--json'])).stdout),
        { dryRun: false, removed: [] },
      )
      assert.equal((await desk.plumb(node, ['gc', 'net', '--all'])).status, 0)
      assert.deepEqual([desk.cached(), desk.reserved()], [{}, []])
    }),
  )
  it(
    'gc frees what is gone without being told, of one network or of all, and tells our own plugins of a list below 1.1.0',
    inNamespaces(['node', 'pod', 'other'], async ({ node, pod, other }) => {
      const CNI_PATH = `${DIST}:${PLUGINS}`
      const gc = async (...argv: string[]) => {
        const done = await desk.plumb(node, ['gc', ...argv], { CNI_PATH })
        assert.equal(done.status, 0, done.stderr)
        return done.stdout
      }
      for (const [{ path }, id] of [
        [pod, 'keep'],
        [other, 'stale'],
      ] as const)
        assert.equal((await desk.plumb(node, ['add', 'net', path, '--container-id', id], { CNI_PATH })).status, 0)
      assert.match(await gc('net'), /^removed 0 of net that are gone\n$/)
      await node.ip('netns', 'delete', other.path.replace('/run/netns/', ''))
      assert.match(await gc('another'), /^removed 0 of another/)
      assert.match(await gc('--dry-run'), /^would remove 1 that is gone\n {2}net {2}stale:eth0 {2}10\.9\.0\.3\/24\n$/)
      assert.match(await gc(), /^removed 1 that is gone\n {2}net {2}stale:eth0/)
      assert.deepEqual([Object.keys(desk.cached()), desk.reserved()], [['net-keep-eth0'], ['10.9.0.2']])
      // As of a runtime that does not remember it.
      rmSync('/var/lib/cni/results', { recursive: true })
      assert.match(
        await gc('net', '--all'),
        /^removed 0 of net that are not in use; its plugins were told that 0 are in use\n$/,
      )
      assert.deepEqual(desk.reserved(), [])
      assert.deepEqual(
        (await pod.json('link')).map(({ ifname }) => ifname),
        ['lo'],
      )
    }),
  )
  it(
    'gc removes the host ports of a pod that another program has removed',
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      desk.conf('10-net.conflist', {
        cniVersion: '1.0.0',
        name: 'net',
        plugins: [
          ...(netConf(desk.dir) as Row)['plugins'],
          { type: 'portmap', capabilities: { portMappings: true } },
          { type: 'firewall' },
        ],
      })
      const CNI_PATH = `${DIST}:${PLUGINS}`
      assert.equal(
        (await desk.plumb(node, ['add', 'net', pod.path, '--port-mapping', '8080:80/tcp'], { CNI_PATH })).status,
        0,
      )
      assert.match((await desk.plumb(node, ['gc'], { CNI_PATH })).stdout, /^removed 0 /)
      await pod.ip('link', 'delete', 'eth0')
      assert.match(
        (await desk.plumb(node, ['gc', 'net'], { CNI_PATH })).stdout,
        /^removed 1 of net that is gone\n {2}net {2}cnitool-/,
      )
      assert.doesNotMatch((await node.exec(['nft', 'list', 'table', 'inet', 'plumb'])).stdout, /8080|10\.9\.0\.2/)
      assert.deepEqual(mentions(/cnitool-/, '/run/cni'), [])
    }),
  )
  it(
    'prints code, message and details of a failing plugin, and no usage',
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      desk.script('broken', `printf %s '{"code":11,"msg":"no address","details":"all 253 in use\\nrun GC"}'; exit 1`)
      desk.conf('10-net.conflist', { cniVersion: '1.1.0', name: 'net', plugins: [{ type: 'broken' }] })
      const failed = await desk.plumb(node, ['add', 'net', pod.path])
      assert.deepEqual(failed, {
        status: 1,
        stdout: '',
        stderr:
          'error 11: plugin type="broken" failed (add): no address\n  all 253 in use\n  run GC\n  rollback: plugin type="broken" failed (del): no address: all 253 in use\n  run GC\n',
      })
      const json = await desk.plumb(node, ['status', 'net', '--json'])
      assert.equal(json.status, 1)
      assert.deepEqual(JSON.parse(json.stdout), {
        code: 11,
        msg: 'plugin type="broken" failed (status): no address',
        details: 'all 253 in use\nrun GC',
      })
    }),
  )
  it(
    'takes port mappings and capability arguments, and says when no plugin wants them',
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      desk.script('echo', `cat >${desk.dir}/stdin; [ $CNI_COMMAND != ADD ] || echo '{}'`)
      desk.conf('10-net.conflist', {
        cniVersion: '1.0.0',
        name: 'net',
        plugins: [{ type: 'echo', capabilities: { portMappings: true } }],
      })
      const flags = [
        '--port-mapping',
        '8080:80',
        '--port-mapping',
        '[fd00::1]:53:5353/UDP',
        '--port-mapping',
        '127.0.0.1:1:2/tcp',
        '--cap-args',
        '{"ips":["10.9.0.9"]}',
      ]
      const done = await desk.plumb(node, ['add', '-', pod.path, ...flags])
      assert.equal(done.stderr, 'no plugin of net declares the capability ips: it is not used\n')
      assert.deepEqual(JSON.parse(readFileSync(`${desk.dir}/stdin`, 'utf8')).runtimeConfig, {
        portMappings: [
          { hostPort: 8080, containerPort: 80, protocol: 'tcp' },
          { hostPort: 53, containerPort: 5353, protocol: 'udp', hostIP: 'fd00::1' },
          { hostPort: 1, containerPort: 2, protocol: 'tcp', hostIP: '127.0.0.1' },
        ],
      })
    }),
  )
  it(
    'exits although a daemon keeps the pipes of a killed plugin open',
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      desk.script(
        'stuck',
        `[ $CNI_COMMAND = ADD ] || exit 0; setsid sh -c 'echo $$ >${desk.dir}/pid; exec sleep 1000' & wait`,
      )
      desk.conf('10-net.conflist', { cniVersion: '1.0.0', name: 'net', plugins: [{ type: 'stuck' }] })
      // The pipes of this test's own are not the daemon's.
      const done = await desk.plumb(node, ['add', 'net', pod.path, '--timeout', '0.5'])
      process.kill(Number(readFileSync(`${desk.dir}/pid`, 'utf8')), 'SIGKILL')
      assert.deepEqual(
        [done.status, done.stderr],
        [1, 'error 11: plugin type="stuck" failed (add): timed out after 0.5 s and was killed\n'],
      )
    }),
  )
})
