// lane: netns
// Tests agent/node/own-tools.ts and lib/os/exec.ts.
import assert from 'node:assert/strict'
import {
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  rmSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
} from 'node:fs'
import { join } from 'node:path'
import { execa } from 'execa'
import { adviceFor } from '../../../agent/node/own-tools.ts'
import { inNamespaces, type Namespace, ping, plugin, until } from '../../support/harness.ts'
import { bridgeConf } from '../../support/network.ts'

const PLUMB = join(import.meta.dir, '../../../dist/plumb')

describe('plumb install --tools', () => {
  let dir = ''
  beforeEach(() => {
    dir = mkdtempSync('/run/own-tools-')
  })
  afterEach(() => rmSync(dir, { recursive: true }))
  const bin = () => join(dir, 'bin')
  const places = () => ['--bin-dir', bin(), '--state-dir', join(dir, 'state')]
  const tools = () => readdirSync(bin()).filter((name) => name.startsWith('.plumb-tools'))

  /** Calls bridge where neither /usr/sbin nor /usr/bin has a program. */
  async function without(command: string, conf: object, pod: Namespace, node: Namespace) {
    const file = join(dir, 'bare')
    const hide = ['/usr/local', '/usr/sbin', '/usr/bin'].map((one) => `mount -t tmpfs none ${one}`).join(' && ')
    writeFileSync(
      file,
      `#!/bin/sh\nexec unshare -m --propagation private /bin/sh -c '${hide} && exec ${bin()}/bridge'\n`,
      { mode: 0o755 },
    )
    return plugin('bridge', { command, conf, netns: pod, path: bin(), file }, node)
  }

  it(
    'without them a node that has no ip is told what to install; with them ADD, CHECK and DEL work, with host ports and masquerade',
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      const conf = bridgeConf(
        {
          cniVersion: '1.0.0',
          ipMasq: true,
          isGateway: true,
          portMappings: true,
          runtimeConfig: { portMappings: [{ hostPort: 8080, containerPort: 80, protocol: 'tcp' }] },
        },
        '10.9.0.0/24',
      )
      await execa(PLUMB, ['install', ...places()])
      const refused = await without('ADD', conf, pod, node)
      assert.equal(refused.error['code'], 5)
      assert.match(refused.error['details'], /install the package (iproute2|nftables), or use plumb install --tools/)
      const { stdout } = await execa(PLUMB, ['install', '--tools', ...places()])
      assert.match(stdout, /^brought ip, tc, bridge, nft.* to .*: plugins use them when the node has none$/m)
      const added = await without('ADD', conf, pod, node)
      assert.equal(added.status, 0, added.stdout + added.stderr)
      await until(() => ping(pod, '10.9.0.1'))
      assert.match((await node.exec(['nft', 'list', 'table', 'inet', 'plumb'])).stdout, /8080/)
      assert.equal((await without('CHECK', { ...conf, prevResult: added.result }, pod, node)).status, 0)
      assert.equal((await without('DEL', conf, pod, node)).status, 0)
      assert.deepEqual(await node.json('link', 'show', 'type', 'veth'), [])
    }),
  )

  it('brings them once, replaces other ones in one step, and uninstall removes them', async () => {
    await execa(PLUMB, ['install', '--tools', ...places()])
    const [link, folder] = tools()
    assert.equal(readlinkSync(join(bin(), link as string)), folder)
    assert.doesNotMatch((await execa(PLUMB, ['install', '--tools', ...places()])).stdout, /brought/)
    // Another version, as of an older image.
    rmSync(join(bin(), link as string))
    await execa('mv', [join(bin(), folder as string), join(bin(), '.plumb-tools-0ld')])
    await execa('ln', ['-s', '.plumb-tools-0ld', join(bin(), '.plumb-tools')])
    assert.match((await execa(PLUMB, ['install', '--tools', ...places()])).stdout, /brought/)
    assert.deepEqual(tools(), [link, folder])
    assert.match((await execa(PLUMB, ['uninstall', '--dry-run', ...places()])).stdout, /would remove .*\.plumb-tools$/m)
    assert.deepEqual(tools(), [link, folder])
    await execa(PLUMB, ['uninstall', ...places()])
    assert.deepEqual(tools(), [])
  })

  it('tools that a power failure damaged are brought again, and a killed call does not keep the next one from its work', async () => {
    await execa(PLUMB, ['install', '--tools', ...places()])
    const [link = '', folder = ''] = tools()
    const ip = join(bin(), link, 'bin/ip')
    const before = readFileSync(ip)
    truncateSync(ip, 0)
    rmSync(join(bin(), link, 'bin/nft'))
    assert.match((await execa(PLUMB, ['install', '--tools', ...places()])).stdout, /brought/)
    assert.ok(readFileSync(ip).equals(before))
    assert.ok(readFileSync(join(bin(), link, 'bin/nft')).length > 0)
    // A kill came before the last rename.
    rmSync(join(bin(), link))
    symlinkSync(folder, join(bin(), `${folder}.link`))
    assert.match((await execa(PLUMB, ['install', '--tools', ...places()])).stdout, /brought/)
    assert.deepEqual(tools(), [link, folder])
    assert.equal(readlinkSync(join(bin(), link)), folder)
  })

  it('tools that the disk refuses leave nothing, so that they do not keep it full', async () => {
    const root = join(dir, 'small')
    mkdirSync(root)
    await execa('mount', ['-t', 'tmpfs', '-o', 'size=3500k', 'tmpfs', root])
    try {
      const { exitCode, stdout, stderr } = await execa(
        PLUMB,
        ['install', '--tools', '--bin-dir', root, '--state-dir', join(dir, 'state')],
        { reject: false },
      )
      assert.equal(exitCode, 1, stdout + stderr)
      assert.match(stdout + stderr, /ENOSPC|no space/i)
      assert.deepEqual(
        readdirSync(root).filter((name) => name.startsWith('.plumb')),
        [],
      )
    } finally {
      await execa('umount', [root])
    }
  })

  it('the advice names the packages of the distribution', () => {
    const line = (release: string) => adviceFor(['ip', 'nft'], release)
    assert.match(
      line('NAME="Ubuntu"\nID=ubuntu\nID_LIKE=debian\n'),
      /^this node has no ip and no nft, .*: apt-get install iproute2 nftables, or use plumb install --tools/,
    )
    assert.match(line('ID="rocky"\nID_LIKE="rhel centos fedora"\n'), /dnf install iproute /)
    assert.match(line('ID=alpine\n'), /apk add iproute2 nftables/)
    assert.match(line('ID=bottlerocket\n'), /install the packages iproute2 and nftables/)
  })
})
