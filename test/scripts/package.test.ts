// lane: peers
// needs: packages
// Tests scripts/package.ts, scripts/package, scripts/arm64.ts: each package in an empty root, by the distribution's own
// tool.
import assert from 'node:assert/strict'
import { type ChildProcess, spawn } from 'node:child_process'
import {
  appendFileSync,
  existsSync,
  linkSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { gunzipSync, zstdDecompressSync } from 'bun'
import { execa } from 'execa'
import { FLAGS } from '../../agent/settings/flags.ts'
import { version } from '../../package.json'
import { sha256 } from '../../scripts/archive.ts'
import { emulator } from '../../scripts/arm64.ts'
import { compile, plugins } from '../../scripts/build.ts'
import { compilePlugins, packagesOf } from '../../scripts/engine.ts'
import { put } from '../../scripts/package/contents.ts'
import { deb as makeDeb } from '../../scripts/package/deb.ts'
import type { Identity } from '../../scripts/package/order.ts'
import { rpm as makeRpm } from '../../scripts/package/rpm.ts'
import { runtime } from '../../scripts/package/runtime.ts'
import { type Finished, inNamespaces, type Namespace, ping, type Row, until } from '../support/harness.ts'
import { skip } from '../support/skip.ts'

const ROOT = join(import.meta.dir, '../..')
const PLUMB = join(ROOT, 'dist/plumb')
/** What a package finds on a node: a shell for its scripts, and the tools of the packages that it depends on. */
const TOOLS = ['/bin/sh', 'ip', 'bridge', 'tc', 'nft']
const NETWORK = {
  cniVersion: '1.0.0',
  name: 'pods',
  type: 'bridge',
  bridge: 'pk0',
  isGateway: true,
  ipMasq: true,
  ipam: { type: 'host-local', subnet: '10.99.0.0/24' },
}
const AGENT = '/etc/plumb/agent.yaml'
const arch = process.arch === 'x64' ? 'amd64' : 'arm64'
const PLUGINS = plugins()
/** arm64 too, where its executable can start. */
const architectures = [...new Set([arch, ...(emulator() ? ['arm64'] : [])])]
/**
 * Other packages of a node. The kubelet of pkgs.k8s.io depends on kubernetes-cni like this, and kubernetes-cni owns
 * /opt/cni/bin/bridge.
 */
const OTHERS = {
  kubelet: {
    relations: { deb: ['Depends: kubernetes-cni (>= 1.2.0)'], rpm: ['Requires: kubernetes-cni >= 1.2.0'] },
    version: '1.35.0',
    file: '/usr/bin/kubelet',
  },
  'kubernetes-cni': {
    relations: { deb: ['Depends: iproute2'], rpm: ['Requires: iproute'] },
    version: '1.8.0',
    file: '/opt/cni/bin/bridge',
  },
  // An rpm root has no other packages here.
  tools: {
    relations: { deb: ['Depends: iproute2'], rpm: ['Provides: iproute, nftables'] },
    version: '1',
    file: '/usr/share/tools',
  },
} as const

describe('npm run package', function () {
  this.timeout(180_000)
  let dir = ''
  const out = (name: string) => join(dir, 'out', name)
  const namesOf = (name: string, of = arch) =>
    [
      `${name}_${version}_${of}.deb`,
      `${name}-${version}.${of === 'amd64' ? 'x86_64' : 'aarch64'}.rpm`,
      `${name}-${version}-linux-${of}.tar.zst`,
    ] as const
  const [deb, rpm, tar] = namesOf('plumb').map((name) => () => out(name)) as [() => string, () => string, () => string]
  before(async function () {
    for (const tool of ['rpmbuild', 'dpkg-deb'])
      if ((await execa('which', [tool], { reject: false })).failed) skip(this, `no ${tool}: packages are untested`)
    dir = mkdtempSync(join(tmpdir(), 'plumb-package-test-'))
    await execa(
      process.execPath,
      ['scripts/package.ts', ...architectures.flatMap((one) => ['--arch', one]), '--out', join(dir, 'out')],
      { cwd: ROOT },
    )
  })
  after(() => dir && rmSync(dir, { recursive: true }))

  it('writes the packages, their checksums, and a bill of materials with Bun and the engine of the plugins in it', async () => {
    const files = ['plumb', 'plumb-plugins'].flatMap((name) => [
      `${name}-${version}.cdx.json`,
      ...architectures.flatMap((one) => namesOf(name, one)),
    ])
    files.push(...architectures.flatMap((one) => namesOf('plumb-bgp', one).slice(0, 2)))
    assert.deepEqual(readdirSync(join(dir, 'out')).sort(), ['SHA256SUMS', ...files].sort())
    assert.equal(readFileSync(out('SHA256SUMS'), 'utf8').split('\n').length - 1, files.length)
    await execa('sha256sum', ['--check', '--strict', 'SHA256SUMS'], { cwd: join(dir, 'out') })
    const { bomFormat, serialNumber, metadata, components, dependencies } = JSON.parse(
      readFileSync(out(`plumb-${version}.cdx.json`), 'utf8'),
    )
    assert.deepEqual([bomFormat, metadata.component.name, metadata.component.version], ['CycloneDX', 'plumb', version])
    assert.match(serialNumber, /^urn:uuid:[\da-f]{8}-[\da-f]{4}-8[\da-f]{3}-8[\da-f]{3}-[\da-f]{12}$/)
    const { dependencies: wanted, devDependencies } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8'))
    const found = new Map<string, string>(
      components.map((one: { name: string; version: string }) => [one.name, one.version]),
    )
    for (const [name, is] of Object.entries({
      ...wanted,
      '@oven/bun-linux-x64': devDependencies.bun,
      '@oven/bun-linux-aarch64': devDependencies.bun,
    }))
      assert.equal(found.get(name), is, name)
    assert.ok(!found.has('mocha'))
    assert.equal(
      found.get('quickjs-ng'),
      /^quickjs-ng==([\w.]+)/m.exec(readFileSync(join(ROOT, 'native/requirements.txt'), 'utf8'))?.[1],
    )
    for (const name of found.keys()) assert.ok(JSON.stringify(dependencies).includes(`${name}@`), name)
  })

  it("plumb-bgp: needs BIRD, and disables its service while BIRD's configuration is the one that it came with", async function () {
    const [file, asRpm] = namesOf('plumb-bgp').map(out) as [string, string]
    assert.equal((await execa('dpkg-deb', ['-f', file, 'Depends'])).stdout, 'plumb, bird2')
    assert.match((await execa('rpm', ['-qp', '--requires', asRpm])).stdout, /^bird >= 2\nplumb$/m)
    await inNamespaces(['node'], async ({ node }) => {
      for (const isChanged of [false, true]) {
        const root = await emptyRoot(['systemctl', 'cmp'])
        try {
          const { dpkg } = toolsOf(root, node)
          // What the package of Debian leaves: its configuration by ucf, and a service that is enabled.
          const bird = '# no peers\n'
          const enabled = join(root, 'etc/systemd/system/multi-user.target.wants/bird.service')
          put(join(root, 'usr/share/bird2/bird.conf'), bird)
          put(join(root, 'etc/bird/bird.conf'), isChanged ? `${bird}# mine\n` : bird)
          const unit = '[Service]\nExecStart=/usr/sbin/bird -f\n[Install]\nWantedBy=multi-user.target\n'
          put(join(root, 'usr/lib/systemd/system/bird.service'), unit)
          mkdirSync(dirname(enabled), { recursive: true })
          symlinkSync('/lib/systemd/system/bird.service', enabled)
          const refused = await dpkg('-i', file)
          assert.match(refused.stderr, /plumb-bgp depends on (plumb|bird2)/)
          const { stdout, stderr } = done(await dpkg('-i', '--force-depends', file))
          assert.match(stdout + stderr, isChanged ? /left bird\.service, whose/ : /disabled bird\.service, whose/)
          assert.equal(lstatSync(enabled, { throwIfNoEntry: false }) !== undefined, isChanged)
          done(await dpkg('-r', 'plumb-bgp'))
          assert.equal(existsSync(join(root, 'usr/share/doc/plumb-bgp')), false)
        } finally {
          await leave(root)
        }
      }
    }).call(this)
  })

  it('the .deb: installs, does its work, keeps settings on an upgrade, and goes only without pods', lived('deb'))
  it('the .rpm: the same', lived('rpm'))

  it(
    'the .deb of the plugins alone: stands in for kubernetes-cni, does its work without plumb, asks for no libc, stays when plumb goes, and leaves nothing',
    alone('deb'),
  )
  it('the .rpm of the plugins alone: the same', alone('rpm'))

  it(
    'the archive of the plugins alone: does its work from the folder of the plugins, and its bill of materials has no Bun',
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      const root = await emptyRoot()
      try {
        await unpack(out(namesOf('plumb-plugins')[2]), join(root, 'opt/cni/bin'))
        assert.deepEqual(readdirSync(join(root, 'opt/cni/bin')).sort(), ['.plumb-doc', ...PLUGINS])
        assert.deepEqual(readdirSync(join(root, 'opt/cni/bin/.plumb-doc')).sort(), [
          'LICENSE',
          'NOTICE',
          'plumb-plugins.cdx.json',
        ])
        isOneSmallFile(root)
        await attachAndDetach(root, node, pod, { isAlone: true })
        const bill = readFileSync(out(`plumb-plugins-${version}.cdx.json`), 'utf8')
        assert.equal(readFileSync(join(root, 'opt/cni/bin/.plumb-doc/plumb-plugins.cdx.json'), 'utf8'), bill)
        assert.deepEqual(
          JSON.parse(bill).components.map(({ name }: { name: string }) => name),
          [...packagesOf(PLUGINS), 'quickjs-ng'],
        )
      } finally {
        await leave(root)
      }
    }),
  )

  it('the plugins alone of every architecture: the three formats have the same names', async () => {
    for (const of of architectures) {
      const [deb, rpm, tar] = namesOf('plumb-plugins', of).map(out) as [string, string, string]
      const folder = mkdtempSync(join(dir, 'names-'))
      await unpack(tar, folder)
      assert.deepEqual(
        readdirSync(folder)
          .filter((name) => !name.startsWith('.'))
          .sort(),
        PLUGINS,
        of,
      )
      const lists = [
        await execa('sh', ['-c', `dpkg-deb --fsys-tarfile ${deb} | tar -t`]),
        await execa('rpm', ['-qlp', rpm]),
      ]
      for (const { stdout } of lists)
        assert.deepEqual(
          [...stdout.matchAll(/\/opt\/cni\/bin\/(\w[\w-]*)$/gm)].map(([, name]) => name),
          PLUGINS,
          of,
        )
    }
  })

  it('the archive: does its work, holds the same files as the packages, and its manual and units are right', async function () {
    const root = await emptyRoot()
    try {
      await unpack(tar(), root)
      await inNamespaces(['node', 'pod'], async ({ node, pod }) => attachAndDetach(root, node, pod)).call(this)
      const listed = (text: string) =>
        text
          .split('\n')
          .flatMap((line) => /^\.?(\/(?:etc|usr)\/.*[^/])$/.exec(line)?.[1] ?? [])
          .sort()
      const files = listed((await execa('tar', ['-tf', `${tar()}.tar`])).stdout)
      assert.deepEqual(listed((await execa('sh', ['-c', `dpkg-deb --fsys-tarfile ${deb()} | tar -t`])).stdout), files)
      const owned = listed((await execa('rpm', ['-qlp', rpm()])).stdout).filter(
        (path) => !statSync(join(root, path)).isDirectory(),
      )
      assert.deepEqual(owned, files)
      for (const unit of ['plumb-agent.service', 'plumb-dhcp.service'])
        assert.match(readFileSync(join(root, 'usr/lib/systemd/system', unit), 'utf8'), /^ExecStart=\/usr\/bin\/plumb /m)
      const [, documentation = ''] =
        /^Documentation=file:(.*)$/m.exec(
          readFileSync(join(root, 'usr/lib/systemd/system/plumb-agent.service'), 'utf8'),
        ) ?? []
      assert.ok(files.includes(documentation), documentation)
      assert.match(
        readFileSync(join(root, 'usr/share/doc/plumb/NOTICE'), 'utf8'),
        /quickjs-ng[\s\S]*Fabrice Bellard[\s\S]*GNU C Library/,
      )
      const agent = manual(root, '/usr/share/man/man8/plumb-agent.8.gz')
      for (const name of Object.keys(FLAGS))
        assert.ok(agent.includes(`\n.B \\-\\-${name.replaceAll('-', '\\-')}`), name)
      for (const [page, words] of [
        ['man1/plumb.1', 'plumb \\- network for containers'],
        ['man1/plumb-cni.1', '.SS "plumb cni explain"'],
        ['man8/plumb-uninstall.8', '.SH "EXIT STATUS"'],
      ] as const)
        assert.ok(manual(root, `/usr/share/man/${page}.gz`).includes(words), page)
      if (!(await execa('groff', ['--version'], { reject: false })).failed)
        for (const page of files.filter((path) => path.includes('/man/')))
          assert.equal(
            (await execa('groff', ['-ww', '-man', '-Tutf8'], { input: manual(root, page) })).stderr,
            '',
            page,
          )
    } finally {
      await leave(root)
    }
  })

  it('the same commit gives the same bytes, whatever the umask and the folders are', async () => {
    const again = join(dir, 'again')
    await execa(
      'sh',
      ['-c', 'umask 077; exec "$@"', 'sh', process.execPath, 'scripts/package.ts', '--arch', arch, '--out', again],
      { cwd: ROOT, env: { TMPDIR: dir, HOME: dir, LC_ALL: 'C', TZ: 'Asia/Tokyo' } },
    )
    const sums = readFileSync(out('SHA256SUMS'), 'utf8').split('\n')
    for (const line of readFileSync(join(again, 'SHA256SUMS'), 'utf8').split('\n')) assert.ok(sums.includes(line), line)
  })

  it('the executable of arm64 starts, and gives out an address as host-local', async function () {
    const found = emulator()
    if (!found && process.arch !== 'arm64')
      skip(this, 'no qemu-user-static or no libc6 of arm64: the arm64 executable is untested')
    const [file, engine] = [join(dir, 'arm64/usr/bin/plumb'), join(dir, 'arm64/bandwidth')]
    for (const name of ['plumb', 'plumb-plugins']) await unpack(out(namesOf(name, 'arm64')[2]), join(dir, 'arm64'))
    const run = (
      called: string,
      argv: readonly string[],
      options: { env?: Readonly<Record<string, string>>; input?: string } = {},
    ) => {
      const program = called === 'plumb' ? file : engine
      return execa(found?.qemu ?? program, found ? ['-0', called, '-L', found.sysroot, program, ...argv] : argv, {
        ...options,
        argv0: called,
      } as object)
    }
    assert.equal((await run('plumb', ['--version'])).stdout, `plumb ${version}`)
    assert.match(String((await run('bridge', [], { env: { CNI_COMMAND: 'VERSION' } })).stdout), /"supportedVersions"/)
    const data = join(dir, 'leases')
    const env = { CNI_CONTAINERID: 'c1', CNI_IFNAME: 'eth0', CNI_NETNS: '/run/netns/none', CNI_PATH: '/opt/cni/bin' }
    const lease = (CNI_COMMAND: string) =>
      run('host-local', [], {
        env: { ...env, CNI_COMMAND },
        input: JSON.stringify({ ...NETWORK, ipam: { ...NETWORK.ipam, dataDir: data } }),
      })
    assert.equal(JSON.parse(String((await lease('ADD')).stdout)).ips[0].address, '10.99.0.2/24')
    assert.ok(existsSync(join(data, 'pods/10.99.0.2')))
    await lease('DEL')
    assert.ok(!existsSync(join(data, 'pods/10.99.0.2')))
  })

  it(
    'the bridge of arm64 attaches a pod, which answers, and removes it, without ipMasq: qemu gives no netlink socket of netfilter',
    inNamespaces(['node', 'pod'], async ({ node, pod }, test) => {
      const found = emulator()
      if (!found && process.arch !== 'arm64')
        skip(test, 'no qemu-user-static or no libc6 of arm64: the arm64 executable is untested')
      const bin = join(dir, 'bin')
      mkdirSync(bin)
      const bridge = join(bin, 'bridge')
      await compilePlugins(bridge, PLUGINS, 'arm64')
      // In qemu a program cannot tell that a file is its own (/proc/self/exe), so it starts host-local.
      if (found)
        writeFileSync(
          join(bin, 'host-local'),
          `#!/bin/sh\nexec ${found.qemu} -0 host-local -L ${found.sysroot} ${bridge}\n`,
          { mode: 0o755 },
        )
      else linkSync(bridge, join(bin, 'host-local'))
      assert.match((await execa('readelf', ['--file-header', bridge])).stdout, /Machine: +AArch64/)
      const env = { CNI_CONTAINERID: 'c1', CNI_IFNAME: 'eth0', CNI_NETNS: pod.path, CNI_PATH: bin }
      const network = { ...NETWORK, ipMasq: false, ipam: { ...NETWORK.ipam, dataDir: join(dir, 'bridge-leases') } }
      const call = async (verb: string, more = {}) =>
        done(
          await node.exec([...(found ? [found.qemu, '-L', found.sysroot] : []), bridge], {
            env: { ...env, CNI_COMMAND: verb },
            stdin: JSON.stringify({ ...network, ...more }),
          }),
        ).stdout
      const prevResult = JSON.parse(await call('ADD'))
      assert.equal(prevResult.ips[0].address, '10.99.0.2/24')
      const [eth0] = await pod.json('address', 'show', 'eth0')
      assert.equal(eth0?.['addr_info'].find(({ family }: Row) => family === 'inet').local, '10.99.0.2')
      assert.ok(await until(() => ping(node, '10.99.0.2')))
      await call('CHECK', { prevResult })
      await call('DEL')
      assert.deepEqual(
        [
          (await pod.json('link')).map(({ ifname }) => ifname),
          readdirSync(join(dir, 'bridge-leases/pods')).filter((name) => name.startsWith('10.')),
        ],
        [['lo'], []],
      )
    }),
  )

  function lived(kind: 'deb' | 'rpm'): (this: Mocha.Context) => Promise<void> {
    return inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      const root = await emptyRoot()
      const { dpkg, rpmTool } = toolsOf(root, node)
      // An rpm root has no other packages here.
      const [install, remove] =
        kind === 'deb'
          ? [() => dpkg('-i', deb()), () => dpkg('-r', 'plumb')]
          : [() => rpmTool('-U', '--replacepkgs', '--nodeps', rpm()), () => rpmTool('-e', 'plumb')]
      try {
        const installed = done(await install())
        assert.match(installed.stdout, /^plumb: now run "plumb install", which puts the plugins into \/opt\/cni\/bin$/m)
        assert.equal(
          sha256(readFileSync(join(root, 'usr/bin/plumb'))),
          await shipped(),
          'as it was compiled: nobody stripped it',
        )
        appendFileSync(join(root, AGENT), '# mine\n')
        const meanwhile = async () => {
          const refused = await remove()
          assert.notEqual(refused.status, 0)
          assert.match(
            refused.stdout + refused.stderr,
            /Cannot uninstall: 1 of the pods that plumb attached lives: pods c1:eth0/,
          )
          assert.ok(existsSync(join(root, 'opt/cni/bin/bridge')))
          done(await install())
          assert.match(readFileSync(join(root, AGENT), 'utf8'), /# mine\n$/)
        }
        await attachAndDetach(root, node, pod, { meanwhile })
        done(await remove())
        assert.deepEqual(
          [
            existsSync(join(root, 'usr/bin/plumb')),
            existsSync(join(root, 'opt/cni/bin/bridge')),
            existsSync(join(root, 'usr/share/doc/plumb')),
          ],
          [false, false, false],
        )
        assert.match(readFileSync(join(root, kind === 'deb' ? AGENT : `${AGENT}.rpmsave`), 'utf8'), /# mine\n$/)
      } finally {
        await leave(root)
      }
    })
  }

  function alone(kind: 'deb' | 'rpm'): (this: Mocha.Context) => Promise<void> {
    return inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      const root = await emptyRoot()
      const { dpkg, rpmTool } = toolsOf(root, node)
      const file = out(namesOf('plumb-plugins')[kind === 'deb' ? 0 : 1])
      const install = (...files: string[]) => (kind === 'deb' ? dpkg('-i', ...files) : rpmTool('-U', ...files))
      const remove = (name: string) => (kind === 'deb' ? dpkg('-r', name) : rpmTool('-e', name))
      const installed = async () => {
        const { stdout } = done(await (kind === 'deb' ? dpkg('-l') : rpmTool('-qa', '--queryformat', 'ii %{NAME}\n')))
        return [...stdout.matchAll(/^.i +((?:kube|plumb)\S*)/gm)].map(([, name]) => name).sort()
      }
      try {
        const others = await Promise.all(Object.keys(OTHERS).map((name) => other(kind, name as keyof typeof OTHERS)))
        done(await install(...others))
        assert.deepEqual(await installed(), ['kubelet', 'kubernetes-cni'])
        done(await install(file))
        assert.deepEqual(
          await installed(),
          ['kubelet', 'plumb-plugins'],
          'it takes the place of kubernetes-cni below the kubelet',
        )
        isOneSmallFile(root)
        assert.doesNotMatch(
          (
            await (kind === 'deb'
              ? execa('dpkg-deb', ['-f', file, 'Depends'])
              : execa('rpm', ['-qp', '--requires', file]))
          ).stdout,
          /libc/,
        )
        await attachAndDetach(root, node, pod, { isAlone: true })
        const refused = await remove('plumb-plugins')
        assert.notEqual(refused.status, 0)
        assert.match(
          refused.stdout + refused.stderr,
          /kubelet.* depends on kubernetes-cni|kubernetes-cni .*is needed by.* kubelet/,
        )
        done(await remove('kubelet'))
        done(await install(others[0] as string))
        assert.deepEqual(await installed(), ['kubelet', 'plumb-plugins'], 'a kubelet that comes later finds it')
        for (const name of ['kubelet', 'plumb-plugins']) done(await remove(name))
        assert.deepEqual(
          [existsSync(join(root, 'opt/cni')), existsSync(join(root, 'usr/share/doc/plumb-plugins'))],
          [false, false],
        )
        done(await (kind === 'deb' ? install(deb()) : install('--nodeps', rpm())))
        const plumbInstall = async () => done(await inside(root, ['/usr/bin/plumb', 'install'], node)).stdout
        assert.match(await plumbInstall(), /^installed \d+ programs/)
        done(await install(file))
        assert.match(await plumbInstall(), /has the \d+ plugins of plumb already/)
        const removed = done(await remove('plumb'))
        assert.match(removed.stdout, /left \/opt\/cni\/bin\/bridge: it belongs to the package plumb-plugins/)
        isOneSmallFile(root)
        done(await remove('plumb-plugins'))
        assert.ok(!existsSync(join(root, 'opt/cni')), 'nothing is left of the two packages beside each other')
      } finally {
        await leave(root)
      }
    })
  }

  // Makes a package of another program of a node.
  async function other(kind: 'deb' | 'rpm', name: keyof typeof OTHERS): Promise<string> {
    const { relations, version, file } = OTHERS[name]
    const [root, to] = [mkdtempSync(join(dir, 'other-')), join(dir, `${name}.${kind}`)]
    put(join(root, file), '#!/bin/false\n', 0o755)
    const identity: Identity = {
      name,
      summary: name,
      about: [name],
      relations: { deb: [...relations.deb], rpm: [...relations.rpm] },
      folders: ['/opt/cni'],
      settings: [],
    }
    await (kind === 'deb' ? makeDeb : makeRpm)(root, to, { identity, arch, version, epoch: 0, paths: [file] })
    return to
  }

  async function shipped(): Promise<string> {
    const file = join(dir, 'compiled/plumb')
    if (!existsSync(file)) {
      mkdirSync(dirname(file))
      await compile(file, await runtime(process.arch as 'x64' | 'arm64'), join(ROOT, 'dist/bridge'))
    }
    return sha256(readFileSync(file))
  }
})

/**
 * Installs the plugins in the root by plumb, adds a pod by them as a runtime does, and removes it. `meanwhile` runs
 * while the pod lives. With `isAlone` the plugins are there already, and plumb is not.
 */
async function attachAndDetach(
  root: string,
  node: Namespace,
  pod: Namespace,
  { meanwhile, isAlone = false }: { meanwhile?: () => Promise<void>; isAlone?: boolean } = {},
): Promise<void> {
  const sleeper: ChildProcess = spawn('nsenter', [`--net=${pod.path}`, 'sleep', '1000'])
  try {
    done(await node.exec(['mount', '-t', 'proc', 'proc', join(root, 'proc')]))
    await pod.ip('link', 'set', 'lo', 'up')
    const env = {
      CNI_CONTAINERID: 'c1',
      CNI_IFNAME: 'eth0',
      CNI_NETNS: `/proc/${sleeper.pid}/ns/net`,
      CNI_PATH: '/opt/cni/bin',
    }
    const call = (verb: string) =>
      inside(root, ['/opt/cni/bin/bridge'], node, {
        stdin: JSON.stringify(NETWORK),
        env: { ...env, CNI_COMMAND: verb },
      })
    assert.equal(existsSync(join(root, 'usr/bin/plumb')), !isAlone)
    if (!isAlone) {
      assert.equal(done(await inside(root, ['/usr/bin/plumb', '--version'], node)).stdout, `plumb ${version}\n`)
      assert.match(
        done(await inside(root, ['/usr/bin/plumb', 'install', '--bin-dir', '/opt/cni/bin'], node)).stdout,
        /^installed \d+ programs in \/opt\/cni\/bin/,
      )
    }
    assert.match(done(await call('VERSION')).stdout, /"supportedVersions"/)
    const { ips } = JSON.parse(done(await call('ADD')).stdout)
    assert.deepEqual(ips, [{ address: '10.99.0.2/24', gateway: '10.99.0.1', interface: 2 }])
    const [link] = await pod.json('address', 'show', 'eth0')
    assert.equal(link?.['addr_info'].find((one: { family: string }) => one.family === 'inet').local, '10.99.0.2')
    await meanwhile?.()
    done(await call('DEL'))
    assert.deepEqual(
      (await pod.json('link')).map(({ ifname }) => ifname),
      ['lo'],
    )
  } finally {
    sleeper.kill()
  }
}

/** Asserts that the plugins of a root are one file of less than 6 MB, and another one for flannel. */
function isOneSmallFile(root: string): void {
  const files = PLUGINS.map((name) => statSync(join(root, 'opt/cni/bin', name)))
  assert.equal(new Set(files.map(({ ino }) => ino)).size, 2)
  assert.equal(files[0]?.nlink, PLUGINS.length - 1)
  assert.equal(statSync(join(root, 'opt/cni/bin/flannel')).nlink, 1)
  assert.ok((files[0]?.size ?? 0) < 6e6)
}

/**
 * The tools of packages for a root. They run in the node's namespaces, because the scripts of packages look at its
 * links.
 */
function toolsOf(root: string, node: Namespace) {
  const dpkg = (...argv: string[]) =>
    node.exec(['dpkg', `--root=${root}`, ...argv], { env: { DEBIAN_FRONTEND: 'noninteractive' } })
  const rpmTool = (...argv: string[]) =>
    node.exec(['rpm', '--root', root, '--dbpath', '/var/lib/rpm', '--force-debian', ...argv])
  return { dpkg, rpmTool }
}

/** Unpacks an archive to a folder, and keeps it without its compression, as FILE.tar. */
async function unpack(file: string, folder: string): Promise<void> {
  mkdirSync(folder, { recursive: true })
  writeFileSync(`${file}.tar`, zstdDecompressSync(readFileSync(file)))
  await execa('tar', ['-C', folder, '-xf', `${file}.tar`])
}

/** A root with nothing but the tools, `more` of them, and their libraries, and Debian's notes of the packages that these are from. */
async function emptyRoot(more: readonly string[] = []): Promise<string> {
  const root = mkdtempSync(join(tmpdir(), 'plumb-root-'))
  for (const one of [
    'proc',
    'dev',
    'run',
    'tmp',
    'var/lib/dpkg/info',
    'var/lib/dpkg/updates',
    'var/lib/dpkg/triggers',
    'var/lib/rpm',
    'usr/bin',
    'usr/sbin',
    'usr/lib',
    'usr/lib64',
  ])
    mkdirSync(join(root, one), { recursive: true })
  for (const one of ['bin', 'sbin', 'lib', 'lib64']) symlinkSync(`usr/${one}`, join(root, one))
  for (const [name, minor] of [
    ['null', '3'],
    ['zero', '5'],
    ['urandom', '9'],
  ] as const)
    await execa('mknod', ['-m', '666', join(root, 'dev', name), 'c', '1', minor])
  const tools = await Promise.all(
    [...TOOLS, ...more].map(async (tool) => (await execa('sh', ['-c', `command -v ${tool}`])).stdout),
  )
  const { stdout } = await execa('ldd', [...tools, PLUMB])
  const libraries = [...stdout.matchAll(/(\/\S+) \(0x/g)].map(([, path = '']) => path)
  for (const path of new Set([...tools, ...libraries])) {
    mkdirSync(join(root, dirname(path)), { recursive: true })
    await execa('cp', ['--dereference', path, join(root, path)])
  }
  const known = await execa('dpkg-query', ['--status', 'libc6', 'iproute2', 'nftables'])
  writeFileSync(join(root, 'var/lib/dpkg/status'), `${known.stdout.replace(/^Conffiles:\n(?: .*\n)*/gm, '')}\n`)
  return root
}

function manual(root: string, page: string): string {
  return Buffer.from(gunzipSync(readFileSync(join(root, page)))).toString()
}

async function leave(root: string): Promise<void> {
  await execa('umount', [join(root, 'proc')], { reject: false })
  rmSync(root, { recursive: true })
}

/** Runs a program of the root, in a namespace. */
function inside(
  root: string,
  argv: readonly string[],
  node: Namespace,
  options: { stdin?: string; env?: Readonly<Record<string, string>> } = {},
): Promise<Finished> {
  return node.exec(['chroot', root, ...argv], options)
}

function done(finished: Finished): Finished {
  assert.equal(finished.status, 0, `${finished.stdout}\n${finished.stderr}`)
  return finished
}
