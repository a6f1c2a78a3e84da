// lane: netns
// Tests agent/node and lib/runtime.
import assert from 'node:assert/strict'
import {
  chmodSync,
  existsSync,
  linkSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  realpathSync,
  rmSync,
  statSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { execa } from 'execa'
import { fingerprint, placeCopy, placeLink } from '../../../agent/node/executables.ts'
import {
  installNetwork,
  installPlugins,
  missingOf,
  networkText,
  PACKAGED,
  packagedOtherwise,
  uninstall as undo,
} from '../../../agent/node/install.ts'
import { installTools } from '../../../agent/node/own-tools.ts'
import { OWN_TOOLS } from '../../../lib/os/exec.ts'
import { loadNetwork } from '../../../lib/runtime/network-list.ts'
import { skip } from '../../support/skip.ts'

const ROOT = join(import.meta.dir, '../../..')
const NAMES = ['bridge', 'flannel']
const ENV = '/run/flannel/subnet.env'

// The paths alone.
function uninstall(places: Parameters<typeof undo>[0]) {
  const { undone, left } = undo(places)
  return { undone: undone.map(({ path }) => path), left }
}

describe('what the agent installs', () => {
  const dirs: string[] = []
  afterEach(() => {
    for (const dir of dirs.splice(0)) rmSync(dir, { recursive: true })
  })

  /** A node with empty folders, and a program. */
  function node() {
    const dir = mkdtempSync(join(tmpdir(), 'plumb-install-'))
    dirs.push(dir)
    const places = { binDir: join(dir, 'bin'), confDir: join(dir, 'conf'), stateDir: join(dir, 'state') }
    const bin = (name: string) => join(places.binDir, name)
    const program = join(dir, 'program')
    function write(path: string, text: string): void {
      mkdirSync(join(path, '..'), { recursive: true })
      rmSync(path, { force: true })
      writeFileSync(path, `#!/bin/sh\n${text}\n`)
      chmodSync(path, 0o755)
    }
    write(program, 'echo one')
    const says = async (name: string) => (await execa(bin(name))).stdout
    const listed = () => (existsSync(places.binDir) ? readdirSync(places.binDir).sort() : [])
    const install = () => installPlugins(places, readFileSync(program), NAMES, { plumb: program })
    return { dir, places, bin, program, write, says, listed, install }
  }

  it('installPlugins() gives every plugin the program, one copy of it under all names and one as plumb; uninstall() leaves nothing', async () => {
    const { places, program, bin, says, listed, install } = node()
    assert.deepEqual(install(), { made: ['plumb', ...NAMES].map(bin), replaced: [] })
    assert.deepEqual(listed(), ['bridge', 'flannel', 'plumb'])
    const inodes = new Set(listed().map((name) => statSync(bin(name)).ino))
    assert.deepEqual([inodes.size, inodes.has(statSync(program).ino), statSync(bin('plumb')).nlink], [3, false, 1])
    for (const name of listed()) assert.deepEqual([await says(name), statSync(bin(name)).mode & 0o777], ['one', 0o755])
    assert.deepEqual(uninstall(places), { undone: ['plumb', ...NAMES].map(bin), left: [] })
    assert.deepEqual([listed(), readdirSync(places.stateDir), existsSync(program)], [[], [], true])
  })

  it('fingerprint() tells two programs of one size and one time apart, also in the same inode', () => {
    const { program } = node()
    const prints = ['one', 'two'].map((text) => {
      writeFileSync(program, text)
      utimesSync(program, 1, 1)
      return fingerprint(program)
    })
    assert.notEqual(prints[0], prints[1])
  })

  it('placeLink() copies where there can be no link, and links where there can', async function () {
    const { dir, program, bin, says } = node()
    const far = mkdtempSync('/dev/shm/plumb-install-')
    dirs.push(far)
    if (statSync(far).dev === statSync(dir).dev) skip(this, 'there is no second file system')
    const there = join(far, 'program')
    // More than one piece, and not a whole number of them.
    writeFileSync(there, `#!/bin/sh\necho far\nexit\n${'x'.repeat(5_000_000)}`, { mode: 0o755 })
    for (const from of [there, program]) {
      placeLink(from, bin('bridge'))
      assert.deepEqual(
        [await says('bridge'), fingerprint(from) === fingerprint(bin('bridge')), statSync(bin('bridge')).mode & 0o777],
        [from === there ? 'far' : 'one', true, 0o755],
      )
      assert.equal(statSync(bin('bridge')).ino === statSync(from).ino, from === program)
      assert.deepEqual(readdirSync(join(dir, 'bin')), ['bridge'])
    }
  })

  it('installPlugins() leaves alone what is right already, also when somebody else put it there, and then it is not uninstalled either', () => {
    const { places, program, bin, listed, install } = node()
    mkdirSync(places.binDir)
    linkSync(program, bin('plumb'))
    writeFileSync(bin('bridge'), readFileSync(program), { mode: 0o755 })
    assert.deepEqual(install().made, [bin('flannel')])
    const before = statSync(bin('flannel'))
    assert.deepEqual(install(), { made: [], replaced: [] })
    assert.deepEqual([statSync(bin('flannel')).ino, statSync(bin('flannel')).mtimeMs], [before.ino, before.mtimeMs])
    uninstall(places)
    assert.deepEqual(listed(), ['bridge', 'plumb'])
  })

  it('a second installation writes nothing, tools included, and a tool that somebody changed is put right', () => {
    const { dir, places, install } = node()
    install()
    const names = installTools(places.binDir)
    assert.ok(names.includes('ip') && names.includes('nft'), names.join())
    const state = () => {
      const all = readdirSync(dir, { recursive: true, encoding: 'utf8' }).sort()
      return all.map((name) => {
        const { ino, mtimeMs, ctimeMs, size } = lstatSync(join(dir, name))
        return [name, ino, mtimeMs, ctimeMs, size]
      })
    }
    const before = state()
    install()
    assert.deepEqual(installTools(places.binDir), [])
    assert.deepEqual(state(), before)
    const tool = realpathSync(join(places.binDir, OWN_TOOLS, 'bin/nft'))
    const bytes = readFileSync(tool)
    writeFileSync(tool, 'short')
    assert.deepEqual(installTools(places.binDir), names)
    assert.deepEqual(readFileSync(tool), bytes)
    assert.deepEqual(
      state().filter(([name], i) => name !== before[i]?.[0]),
      [],
    )
  })

  it('installPlugins() and uninstall() leave the programs of the package plumb-plugins, which may be of another version, and bring what it has not', () => {
    const { places, program, bin, write, install } = node()
    const mark = '# plumb: one executable for all plugins, told apart by the name it is called by'
    write(program, mark)
    install()
    writeFileSync(bin(PACKAGED), '')
    write(bin('bridge'), `${mark}\n# of the package`)
    rmSync(bin('flannel'))
    write(program, `${mark}\n# newer`)
    assert.deepEqual(install(), { made: ['plumb', 'flannel'].map(bin), replaced: [] })
    assert.match(
      packagedOtherwise(places.binDir, ['bridge']) ?? '',
      /^left bridge in .*: they belong to the package plumb-plugins/,
    )
    const { undone, left } = uninstall(places)
    assert.deepEqual([undone, left], [[bin('plumb')], ['bridge', 'flannel'].map(bin)])
    assert.match(readFileSync(bin('bridge'), 'utf8'), /# of the package/)
  })

  it('installPlugins() puts plumb beside the plugins only when it is wanted', () => {
    const { places, program, bin, listed } = node()
    assert.deepEqual(installPlugins(places, readFileSync(program), NAMES).made, NAMES.map(bin))
    assert.deepEqual(listed(), NAMES)
    placeCopy(program, bin('plumb'))
    assert.deepEqual(uninstall(places).undone, NAMES.map(bin))
    assert.deepEqual(listed(), ['plumb'])
  })

  it('installPlugins() of a new version replaces the old one in one step, and keeps none of it aside', async () => {
    const { places, program, bin, write, says, listed, install } = node()
    install()
    write(program, 'echo two')
    assert.deepEqual(install(), { made: ['plumb', ...NAMES].map(bin), replaced: [] })
    assert.deepEqual([await says('bridge'), listed()], ['two', ['bridge', 'flannel', 'plumb']])
    uninstall(places)
    assert.deepEqual(listed(), [])
  })

  it('installPlugins() keeps another program of the name aside, a symbolic link too, and uninstall() puts it back', async () => {
    const { places, bin, write, says, listed, dir, install } = node()
    write(bin('bridge'), 'echo reference')
    write(join(dir, 'elsewhere'), 'echo linked')
    symlinkSync(join(dir, 'elsewhere'), bin('flannel'))
    assert.deepEqual(install().replaced, [bin('bridge'), bin('flannel')])
    assert.deepEqual(
      [await says('bridge'), await says('flannel'), readdirSync(bin('.before-plumb')).sort()],
      ['one', 'one', NAMES],
    )
    // A package brings a newer one meanwhile: that is the one to put back.
    write(bin('bridge'), 'echo newer')
    assert.deepEqual(install(), { made: [bin('bridge')], replaced: [bin('bridge')] })
    assert.equal(await says('bridge'), 'one')
    assert.deepEqual(uninstall(places).left, [])
    assert.deepEqual([await says('bridge'), await says('flannel'), listed()], ['newer', 'linked', NAMES])
  })

  it('what was there at the very first comes back after any number of upgrades, though the note of what was installed is lost', async () => {
    const { places, program, bin, write, says, listed, install } = node()
    write(bin('bridge'), 'echo reference')
    // Every executable of plumb holds its own source, and so the line that tells it from others.
    const [, mark] = /MARK = '([^']+)'/.exec(readFileSync(join(ROOT, 'agent/node/executables.ts'), 'utf8')) ?? []
    const upgrade = (version: string) => write(program, `echo ${version}\nexit\n# ${'x'.repeat((2 << 20) - 50)}${mark}`)
    for (const version of ['one', 'two', 'three', 'four']) {
      upgrade(version)
      install()
      assert.equal(await says('bridge'), version)
      if (version !== 'three') rmSync(places.stateDir, { recursive: true })
    }
    const dry = undo(places, { dryRun: true })
    assert.deepEqual([dry.undone, await says('bridge')], [[{ path: bin('bridge'), isBack: true }], 'four'])
    assert.deepEqual(undo(places), dry)
    assert.deepEqual(
      [await says('bridge'), readFileSync(join(ROOT, 'dist/plumb')).includes(mark as string)],
      ['reference', true],
    )
    assert.deepEqual(
      listed().filter((name) => name.startsWith('.')),
      [],
    )
  })

  it('uninstall() leaves what somebody else changed since, and says so; without a note it does nothing', async () => {
    const { places, bin, write, says, install } = node()
    assert.deepEqual(uninstall(places), { undone: [], left: [] })
    install()
    installNetwork(places, ENV)
    write(bin('flannel'), 'echo somebody')
    writeFileSync(join(places.confDir, '10-flannel.conflist'), '{}')
    rmSync(bin('plumb'))
    assert.deepEqual(uninstall(places), {
      undone: [bin('bridge')],
      left: [join(places.confDir, '10-flannel.conflist'), bin('flannel')],
    })
    assert.equal(await says('flannel'), 'somebody')
    writeFileSync(join(places.stateDir, 'installed.json'), '{"files":')
    assert.deepEqual(uninstall(places), { undone: [], left: [] })
    // What is no file is nobody's program, whatever a note says.
    await execa('mkfifo', [bin('pipe')])
    for (const one of [bin('pipe'), places.confDir]) {
      writeFileSync(join(places.stateDir, 'installed.json'), JSON.stringify({ files: [one], prints: [], networks: [] }))
      assert.deepEqual([uninstall(places), existsSync(one)], [{ undone: [], left: [one] }, true])
    }
  })

  it('nobody puts back what an uninstall removes that is at work or was killed; the next installation counts again', () => {
    const { places, bin, install } = node()
    const note = join(places.stateDir, 'installed.json')
    const network = join(places.confDir, '10-flannel.conflist')
    install()
    installNetwork(places, ENV)
    rmSync(network)
    assert.deepEqual(missingOf(places), [network])
    writeFileSync(note, JSON.stringify({ ...JSON.parse(readFileSync(note, 'utf8')), isLeaving: true }))
    rmSync(bin('flannel'))
    assert.deepEqual(missingOf(places), [])
    assert.deepEqual(uninstall(places), { undone: [bin('plumb'), bin('bridge')], left: [] })
    assert.equal(existsSync(note), false)
    install()
    installNetwork(places, ENV)
    rmSync(network)
    assert.deepEqual(missingOf(places), [network])
  })

  it('an installation that the disk refuses leaves nothing, keeps what was there, and uninstall() names nothing', async () => {
    const { places, bin, write, says } = node()
    mkdirSync(places.binDir)
    await execa('mount', ['-t', 'tmpfs', '-o', 'size=1m', 'tmpfs', places.binDir])
    try {
      write(bin('bridge'), 'echo reference')
      assert.throws(() => installPlugins(places, Buffer.alloc(3_000_000, '#'), NAMES), { code: 'ENOSPC' })
      assert.deepEqual(
        [readdirSync(places.binDir), await says('bridge'), readdirSync(places.stateDir)],
        [['bridge'], 'reference', []],
      )
      assert.deepEqual(uninstall(places), { undone: [], left: [] })
    } finally {
      await execa('umount', [places.binDir])
    }
  })

  it('what a kill left half done is completed by the next installPlugins(), and undone by uninstall()', async () => {
    const { places, bin, write, says, listed, install } = node()
    write(bin('bridge'), 'echo reference')
    // Noted, kept aside, and not yet in place.
    mkdirSync(bin('.before-plumb'))
    linkSync(bin('bridge'), bin('.before-plumb/bridge'))
    writeFileSync(bin('.plumb.draft'), 'half')
    install()
    assert.deepEqual([await says('bridge'), listed()], ['one', ['.before-plumb', 'bridge', 'flannel', 'plumb']])
    // The note of a version that was never put in place.
    const note = join(places.stateDir, 'installed.json')
    const { prints, ...rest } = JSON.parse(readFileSync(note, 'utf8'))
    writeFileSync(note, JSON.stringify({ ...rest, prints: ['of a newer one', ...prints] }))
    writeFileSync(join(places.stateDir, '.installed.json.draft'), 'half')
    assert.deepEqual(uninstall(places).left, [])
    assert.deepEqual([await says('bridge'), listed(), readdirSync(places.stateDir)], ['reference', ['bridge'], []])
  })

  it('installNetwork() puts the sample in place, once, follows subnet-file, and uninstall() removes it', () => {
    const { places } = node()
    const path = join(places.confDir, '10-flannel.conflist')
    assert.deepEqual(installNetwork(places, ENV), { path, made: true, foreign: false })
    const sample = JSON.parse(readFileSync(join(ROOT, 'conf/flannel.conflist'), 'utf8'))
    assert.deepEqual([JSON.parse(readFileSync(path, 'utf8')), statSync(path).mode & 0o777], [sample, 0o644])
    const { name, cniVersion, plugins } = loadNetwork(places.confDir)
    assert.deepEqual([name, cniVersion, plugins.map(({ type }) => type)] as unknown, ['cbr0', '1.1.0', ['flannel']])
    const before = statSync(path).ino
    assert.deepEqual([installNetwork(places, ENV).made, statSync(path).ino], [false, before])
    assert.deepEqual(installNetwork(places, '/run/other/subnet.env').made, true)
    assert.equal(JSON.parse(readFileSync(path, 'utf8')).plugins[0].subnetFile, '/run/other/subnet.env')
    // With network policy the agent admits each pod, at its own socket or at another.
    for (const [socket, policy] of [
      ['/run/plumb/policy.sock', true],
      ['/run/p.sock', { socket: '/run/p.sock' }],
    ] as const) {
      assert.deepEqual(installNetwork(places, ENV, { policySocket: socket }).made, true)
      assert.deepEqual(JSON.parse(readFileSync(path, 'utf8')).plugins[0].delegate, {
        ...sample.plugins[0].delegate,
        policy,
      })
    }
    // Routed pods have no bridge and keep what is not the bridge's.
    assert.deepEqual(installNetwork(places, ENV, { pods: 'routed' }).made, true)
    assert.deepEqual(JSON.parse(readFileSync(path, 'utf8')).plugins[0].delegate, {
      type: 'ptp',
      routed: true,
      portMappings: true,
    })
    assert.deepEqual(uninstall(places), { undone: [path], left: [] })
    assert.deepEqual(readdirSync(places.confDir), [])
  })

  it('installNetwork() leaves the file of somebody else, and tells of one that comes first', () => {
    const { places } = node()
    const path = join(places.confDir, '10-flannel.conflist')
    mkdirSync(places.confDir)
    writeFileSync(path, networkText(ENV).replace('cbr0', 'theirs'))
    assert.deepEqual(installNetwork(places, ENV), { path, made: false, foreign: true })
    rmSync(path)
    for (const name of ['05-other.conf', '99-last.conflist', '00-note.txt'])
      writeFileSync(join(places.confDir, name), '{}')
    assert.deepEqual(installNetwork(places, ENV), {
      path,
      made: true,
      foreign: false,
      hiddenBy: join(places.confDir, '05-other.conf'),
    })
    writeFileSync(path, networkText(ENV).replace('cbr0', 'theirs'))
    assert.deepEqual(uninstall(places).left, [path])
  })
})
