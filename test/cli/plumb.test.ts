// lane: quick
// Tests cli/plumb.ts: every command line that is wrong, without root, or with nobody who reads.
import assert from 'node:assert/strict'
import { existsSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { execa } from 'execa'

const PLUMB = join(import.meta.dir, '../../dist/plumb')

describe('plumb', () => {
  let dir: string
  before(() => {
    dir = mkdtempSync(join(tmpdir(), 'cli-'))
    writeFileSync(`${dir}/10-net.conflist`, '{"name":"net","plugins":[{"type":"none"}]}')
  })
  after(() => rmSync(dir, { recursive: true }))
  const usage: [string, RegExp][] = [
    ['', /^$/],
    ['cnni', /^plumb has no command "cnni", did you mean "cni"\?; see plumb --help$/],
    ['cni', /^$/],
    ['cni ad', /^plumb cni has no command "ad"; see plumb cni --help$/],
    ['cni chek net a', /no command "chek", did you mean "check"\?; see/],
    ['cni add', /^plumb cni add wants NETWORK NETNS, not ""; see plumb cni add --help$/],
    ['cni add net a b', /wants NETWORK NETNS, not "net a b"/],
    ['cni add net', /^NETNS is missing/],
    ['cni add net none', /^Cannot open the network namespace "\/run\/netns\/none": it does not exist/],
    ['cni add nett a', /^Cannot find network "nett": .* has net, did you mean "net"\?$/],
    [
      'cni add net a --ifnme x',
      /^plumb cni add has no option --ifnme, did you mean "--ifname"\?; see plumb cni add --help$/,
    ],
    ['cni explain net a b', /^plumb cni explain wants NETWORK \[NETNS\], not "net a b"/],
    ['cni explain net --prev-result /none', /^Cannot read --prev-result: ENOENT/],
    ['cni explain net', /^error 7: Cannot find the plugin "none"\n {2}looked in \/none \(CNI_PATH\)$/],
    ['cni list --ifname x', /^plumb cni list has no option --ifname; see/],
    ['cni add net a --timeout', /^Option '--timeout <value>' argument missing; see/],
    ['cni add net a --timeout soon', /^Cannot read --timeout "soon": want seconds, more than 0$/],
    ['cni add net a --ifname a/b', /^Cannot read --ifname: "a\/b": want an interface name/],
    ['cni add net a --container-id ../x', /^Cannot read --container-id: "\.\.\/x": want/],
    ['cni add net a --args K', /^Cannot read --args "K": "K" is no pair K=V$/],
    ['cni add net a --cap-args []', /^Cannot read --cap-args "\[\]": want an object$/],
    ['cni add net a --cap-args {', /^Cannot read --cap-args: it is not JSON/],
    ['cni add net a --port-mapping 80', /^Cannot read --port-mapping "80": want \[IP:\]HOST:CONTAINER/],
    ['cni add net a --port-mapping 0:80', /^Cannot read --port-mapping "0:80": 0: want a port/],
    ['cni add net a --port-mapping x:1:80', /^Cannot read --port-mapping "x:1:80": "x": want an IP address/],
  ]

  for (const [line, message] of usage) {
    it(`exits 2 with a hint for: plumb ${line}`, async () => {
      const done = await plumb(line.split(' ').filter(Boolean))
      assert.equal(done.exitCode, 2)
      assert.match(done.stderr, message)
      assert.deepEqual(readdirSync(dir), ['10-net.conflist'])
    })
  }
  it('tells how it is used: every command has a help, and it names the exit status', async () => {
    for (const argv of [
      '',
      'cni ',
      'cni add ',
      'cni check ',
      'cni del ',
      'cni gc ',
      'cni status ',
      'cni explain ',
      'cni list ',
    ]) {
      const { exitCode, stdout } = await plumb(`${argv}--help`.split(' '))
      assert.equal(exitCode, 0)
      assert.match(stdout, new RegExp(`usage: plumb ${argv}.*\nexit status: 0 done`, 's'))
    }
    assert.match((await plumb(['--version'])).stdout, /^plumb \d+\.\d+\.\d+$/)
  })
  it('answers a wrong command line with JSON too, when asked to', async () => {
    const { exitCode, stdout } = await plumb(['cni', 'add', 'nett', 'a', '--json'])
    assert.deepEqual([exitCode, JSON.parse(stdout).code], [2, 7])
  })
  it('exits 1 when stdout is full, and as SIGPIPE has it, without a word, when its reader is gone: nobody heard the answer', async () => {
    // In the second, `true` has opened the pipe and ended before the shell starts plumb.
    for (const [line, ...said] of [
      ['"$@" >/dev/full', 1, 'error 5: Cannot write to stdout'],
      ['rm -f $0; mkfifo $0; true <$0 & exec 3>$0; wait; "$@" >&3', 141, ''],
    ] as const) {
      const done = await execa('sh', ['-c', line, `${dir}/../${process.pid}.pipe`, PLUMB, 'cni', '--help'], {
        reject: false,
      })
      assert.deepEqual([done.exitCode, done.stderr.split('\n')[0]], said, line)
    }
    rmSync(`${dir}/../${process.pid}.pipe`)
  })

  function plumb(argv: readonly string[]) {
    return execa(PLUMB, argv, { reject: false, extendEnv: false, env: { NETCONFPATH: dir, CNI_PATH: '/none' } })
  }
})

describe('plumb without root', () => {
  const as = async (user: number, line: string) => {
    const { exitCode, stdout, stderr } = await execa(
      'setpriv',
      [`--reuid=${user}`, `--regid=${user}`, '--clear-groups', PLUMB, ...line.split(' ')],
      { reject: false, stdin: 'ignore' },
    )
    return { exitCode, text: stdout + stderr }
  }

  for (const line of ['agent cleanup --store=file', 'install', 'dhcp', 'uninstall --purge --dry-run'])
    it(`${line}: says in a sentence that it needs root, and fails`, async () => {
      const { exitCode, text } = await as(65_534, line)
      assert.equal(exitCode, 1, text)
      assert.match(text, /^error 4: This command needs root\n {2}run it with sudo \(.*\b(EACCES|EPERM|errno 1)\b.*\)$/s)
    })
  it('sysdump: writes no archive that lacks nearly everything', async () => {
    const { exitCode, text } = await as(65_534, 'sysdump -o /tmp/plumb-no-root.tar.gz')
    assert.deepEqual([exitCode, existsSync('/tmp/plumb-no-root.tar.gz')], [1, false])
    assert.match(text, /^error 4: Cannot tell the state of this node: it needs root\n {2}run it with sudo$/)
  })
  it('doctor: says once which checks need root, and is no report of a healthy node', async () => {
    const { exitCode, text } = await as(65_534, 'doctor')
    assert.equal(exitCode, 3)
    assert.equal(text.match(/^not checked: .*: they need root; run it with sudo$/gm)?.length, 1, text)
    assert.doesNotMatch(text, /EACCES|not permitted|errno/)
    const { exitCode: ended } = await as(65_534, 'doctor DR9')
    assert.equal(ended, 3)
  })
})
