// lane: netns
// Tests cli/explain.
import assert from 'node:assert/strict'
import { chmodSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Explanation } from '../../../cli/explain/explanation.ts'
import { type Finished, inNamespaces, type Namespace, plugin, snapshot } from '../../support/harness.ts'
import { settled } from '../../support/network.ts'
import { linesOf } from '../../support/predicted-node.ts'
import { STRACE } from '../../support/recording.ts'
import { skip } from '../../support/skip.ts'
import { killing } from '../../support/tool-shims.ts'

const DIST = join(import.meta.dir, '../../../dist')
const NOBODY = ['setpriv', '--reuid=65534', '--regid=65534', '--clear-groups', '--inh-caps=-all', '--bounding-set=-all']
// The calls by which a process could change anything, or start another; threads are none.
const CHANGES =
  'execve,execveat,fork,vfork,setns,unshare,flock,mkdir,mkdirat,rmdir,unlink,unlinkat,rename,renameat,renameat2,link,linkat,symlink,symlinkat,chmod,fchmod,fchmodat,chown,fchown,lchown,fchownat,truncate,ftruncate,utimensat,mknod,mknodat,mount,umount2,fsync,kill,clone,clone3,openat,open,creat,connect,sendto,sendmsg'
const PORTS = ['--port-mapping', '8080:80', '--port-mapping', '53:53/udp']

/** A network of a bridge and portmap, its pool and its cache in a folder that everyone may look into. */
interface Place {
  readonly dir: string
  readonly bridge: object
  configure(...plugins: readonly object[]): void
  /** `plumb cni ARGV`, behind a program that starts it. */
  plumb(argv: readonly string[], before?: readonly string[]): Promise<Finished>
  told(argv: readonly string[], before?: readonly string[]): Promise<Explanation>
}

// The next test has another node, whose ports nobody has.
afterEach(() => rmSync('/run/cni/plumb', { recursive: true, force: true }))

describe('plumb cni explain', () => {
  it(
    'starts no process, enters no namespace, takes no lock and writes no file, for ADD and DEL, before and after an ADD',
    inNamespaces(['node', 'pod', 'other'], async ({ node, pod, other }, test) => {
      if (!existsSync(STRACE)) skip(test, 'strace is not installed')
      const place = placeOn(node)
      const quiet = async (argv: readonly string[]) => {
        const trace = `${place.dir}/trace`
        const { status, stderr } = await place.plumb(
          ['explain', 'net', ...argv],
          [STRACE, '-f', '-qq', '-y', '-o', trace, '-e', `trace=${CHANGES}`],
        )
        assert.deepEqual([status, stderr], [0, ''])
        assert.deepEqual(changes(readFileSync(trace, 'utf8')), [])
      }
      // The kernel's own link-local addresses, tentative for a second or two, would be one more thing to wait for.
      await node.exec(['sh', '-c', 'echo 0 >/proc/sys/net/ipv6/conf/default/accept_dad'])
      const before = await snapshot(node)
      for (const argv of [[pod.path, ...PORTS], ['--del', pod.path, ...PORTS], PORTS, ['--json', pod.path]])
        await quiet(argv)
      assert.deepEqual(
        [await snapshot(node), existsSync(`${place.dir}/pool`), existsSync(`${place.dir}/cache`)],
        [before, false, false],
      )
      assert.equal((await place.plumb(['add', 'net', pod.path, ...PORTS])).status, 0)
      const after = await settled(() => look(node))
      for (const argv of [[pod.path, ...PORTS], ['--del', pod.path], [other.path]]) await quiet(argv)
      assert.equal(await settled(() => look(node)), after)
      // That the check above can see a change at all.
      const { status } = await place.plumb(
        ['del', 'net', pod.path],
        [STRACE, '-f', '-qq', '-y', '-o', `${place.dir}/trace`, '-e', `trace=${CHANGES}`],
      )
      assert.equal(status, 0)
      assert.ok(changes(readFileSync(`${place.dir}/trace`, 'utf8')).length > 10)
    }),
  )

  it(
    'says the same to nobody as to root, and gives an example where nobody may not look',
    inNamespaces(['node', 'pod', 'other'], async ({ node, pod, other }) => {
      const place = placeOn(node)
      assert.equal(
        (await place.plumb(['add', 'net', pod.path, '--container-id', 'first', '--port-mapping', '8888:80'])).status,
        0,
      )
      assert.deepEqual(await place.told([other.path, ...PORTS], NOBODY), await place.told([other.path, ...PORTS]))
      const seen = await place.told([other.path], NOBODY)
      assert.match(seen.plugins[0]?.pool?.about ?? '', /^free now/)
      assert.deepEqual(addresses(seen), ['10.1.0.3/24', 'fd00:1::3/64'])
      chmodSync(`${place.dir}/pool`, 0o700)
      const unseen = await place.told([other.path], NOBODY)
      assert.match(unseen.plugins[0]?.pool?.about ?? '', /^an example: .*\/pool\/net cannot be read, the pool decides/)
      assert.deepEqual(addresses(unseen), ['10.1.0.2/24', 'fd00:1::2/64'])
      // Of the record that root alone may read: what ADD would have noted.
      const [asRoot, asNobody] = [
        await place.told(['--del', other.path, ...PORTS]),
        await place.told(['--del', other.path, ...PORTS], NOBODY),
      ]
      assert.match(asNobody.plugins[0]?.notes.join() ?? '', /no record of the attachment can be read/)
      // The addresses of the example are the first pod's, which goes on being masqueraded.
      const others = (told: Explanation) => linesOf(told).flatMap(({ text }) => (/ masq[46] /.test(text) ? [] : text))
      assert.deepEqual(
        others(asNobody).map((text) => text.replaceAll('10.1.0.2', '10.1.0.3').replaceAll('fd00:1::2', 'fd00:1::3')),
        others(asRoot),
      )
    }),
  )

  it(
    'shows an attachment that is there with its own addresses, and its DEL from what was noted, without configuration or ports',
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      const place = placeOn(node)
      const before = await place.told([pod.path, ...PORTS])
      const foreseen = await place.told(['--del', pod.path, ...PORTS])
      assert.equal((await place.plumb(['add', 'net', pod.path, ...PORTS])).status, 0)
      const again = await place.told([pod.path, ...PORTS])
      assert.match(
        again.notes.join(),
        /^eth0 of cnitool-\w+ is attached to net already: ADD would be refused until DEL$/,
      )
      assert.equal(again.plugins[0]?.pool?.about, 'held by this attachment already')
      assert.deepEqual(
        { ...again, notes: [], plugins: again.plugins.map(({ pool: _, ...one }) => one) },
        { ...before, plugins: before.plugins.map(({ pool: _, ...one }) => one) },
      )
      const noted = await place.told(['--del', pod.path])
      // The bridge of the attachment masquerades within the same subnets, and loses them last.
      const isPair = ({ text }: { text: string }) => / local[46] /.test(text)
      assert.deepEqual(
        linesOf(noted).filter((line) => !isPair(line)),
        linesOf(foreseen).filter((line) => !isPair(line)),
      )
      assert.deepEqual([noted.plugins[0]?.notes, foreseen.plugins[0]?.notes.length], [[], 1])
      place.configure({ type: 'bridge', mtu: 'bad' }, { type: 'portmap', capabilities: { portMappings: true } })
      assert.deepEqual(linesOf(await place.told(['--del', pod.path])), linesOf(noted))
    }),
  )

  it(
    'refuses a host port that another container has, as ADD does, and shows what goes first when that one’s namespace is gone',
    inNamespaces(['node', 'pod', 'other'], async ({ node, pod, other }) => {
      const place = placeOn(node)
      assert.equal((await place.plumb(['add', 'net', pod.path, ...PORTS])).status, 0)
      const del = await place.told(['--del', pod.path])
      const own = linesOf({ ...del, plugins: del.plugins.filter(({ type }) => type === 'portmap') })
      const refused = await place.plumb(['explain', 'net', other.path, ...PORTS])
      assert.match(
        refused.stderr,
        /^error 7: plugin type="portmap" failed \(add\): Cannot give host port 8080\/tcp to this container: container cnitool-\w+ has it\n/,
      )
      assert.deepEqual(
        [refused.status, refused.stderr],
        [2, (await place.plumb(['add', 'net', other.path, ...PORTS])).stderr],
      )
      assert.match(
        (await place.told([other.path, ...PORTS], NOBODY)).plugins[1]?.notes.join() ?? '',
        /whether its host ports are free cannot be read/,
      )
      await node.ip('netns', 'delete', pod.path.slice('/run/netns/'.length))
      const runs = (await place.told([other.path, ...PORTS])).plugins[1]?.runs.filter(({ when }) =>
        when?.includes('namespace is gone'),
      )
      assert.deepEqual(
        runs?.flatMap(({ lines }) => lines),
        own,
      )
      assert.equal((await place.plumb(['add', 'net', other.path, ...PORTS])).status, 0)
    }),
  )

  it(
    'shows what goes first because an ADD was killed',
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      const place = placeOn(node)
      const [clean] = (await place.told([pod.path, '--container-id', 'c1'])).plugins
      await plugin(
        'bridge',
        {
          command: 'ADD',
          conf: { cniVersion: '1.1.0', name: 'net', ...place.bridge },
          netns: pod,
          file: killing('bridge', 2, 'after').file,
        },
        node,
      )
      const told = await place.told([pod.path, '--container-id', 'c1'])
      const [first, ...rest] = told.plugins[0]?.runs ?? []
      assert.match(first?.lines[0]?.text ?? '', /^link set dev veth\w+ group /)
      assert.match(first?.when ?? '', /was killed/)
      assert.deepEqual(
        rest.map(({ argv }) => argv),
        clean?.runs.map(({ argv }) => argv),
      )
      // Freed first, then taken again: the next one's turn.
      assert.deepEqual(addresses(told), ['10.1.0.3/24', 'fd00:1::3/64'])
      const added = await place.plumb(['add', 'net', pod.path, '--container-id', 'c1', '--json'])
      assert.deepEqual(addresses({ result: JSON.parse(added.stdout) }), addresses(told))
    }),
  )
})

describe('plumb cni explain of what ADD refuses', () => {
  const pool = { type: 'host-local', ranges: [[{ subnet: '10.1.0.0/24' }]] }
  const bridge = { type: 'bridge', bridge: 'br0', ipam: pool }
  const cases: Readonly<
    Record<
      string,
      {
        readonly conf: object
        readonly argv?: readonly string[]
        readonly netns?: string
        readonly status: number
        readonly adding?: number
      }
    >
  > = {
    'a value': { conf: { ...bridge, mtu: 'big' }, status: 2 },
    'an unknown key that is to be refused': { conf: { ...bridge, brigde: 'br1', strict: true }, status: 2, adding: 2 },
    'keys that exclude each other': { conf: { ...bridge, hairpinMode: true, promiscMode: true }, status: 2 },
    'a range that is too small': {
      conf: { ...bridge, ipam: { type: 'host-local', subnet: '10.1.0.0/31' } },
      status: 2,
    },
    'a version that cannot show the result': { conf: { type: 'bridge', cniVersion: '0.2.0' }, status: 2 },
    'a pool that is not there': { conf: { ...bridge, ipam: { type: 'none' } }, status: 2 },
    'a plugin that is not there': { conf: { type: 'none' }, status: 2 },
    'a chained plugin that is the first': { conf: { type: 'portmap' }, status: 2 },
    'an argument': { conf: bridge, argv: ['--args', 'NOPE=1'], status: 2 },
    'an address that is the gateway': {
      conf: { ...bridge, capabilities: { ips: true } },
      argv: ['--cap-args', '{"ips":["10.1.0.1"]}'],
      status: 2,
    },
    'an address that is another’s': {
      conf: { ...bridge, capabilities: { ips: true }, ipam: { ...pool, dataDir: '/run/taken' } },
      argv: ['--cap-args', '{"ips":["10.1.0.9"]}'],
      status: 2,
    },
    'a pool with nothing left': {
      conf: {
        ...bridge,
        ipam: {
          type: 'host-local',
          subnet: '10.1.0.0/24',
          rangeStart: '10.1.0.9',
          rangeEnd: '10.1.0.9',
          dataDir: '/run/taken',
        },
      },
      status: 1,
    },
    'a resolv.conf that is not there': {
      conf: { ...bridge, ipam: { ...pool, resolvConf: '/none/resolv.conf' } },
      status: 1,
    },
    'the node’s own namespace': { conf: bridge, netns: '/proc/self/ns/net', status: 2 },
    'a file that is no namespace': { conf: { type: 'loopback' }, netns: '/proc/self/status', status: 2 },
  }
  for (const [what, { conf, argv = [], netns, status, adding = 1 }] of Object.entries(cases)) {
    it(
      `says what ADD says, and exits ${status}: ${what}`,
      inNamespaces(['node', 'pod'], async ({ node, pod }) => {
        const place = placeOn(node)
        mkdirSync('/run/taken/net', { recursive: true })
        writeFileSync('/run/taken/net/10.1.0.9', 'other\r\neth0')
        place.configure(conf)
        const args = ['net', netns ?? pod.path, '--container-id', 'c1', ...argv]
        const [explained, added] = [await place.plumb(['explain', ...args]), await place.plumb(['add', ...args])]
        // What ADD had to say of its own way back is behind it.
        const said = added.stderr.replace(/\n {2}rollback: .*/s, '\n')
        assert.deepEqual([explained.status, explained.stdout, explained.stderr], [status, '', said])
        assert.equal(added.status, adding)
        const json = await place.plumb(['explain', ...args, '--json'])
        assert.equal(JSON.parse(json.stdout).code, Number(/^error (\d+): /.exec(said)?.[1] ?? 7))
      }),
    )
  }
})

function placeOn(node: Namespace): Place {
  const dir = mkdtempSync('/run/explain-')
  chmodSync(dir, 0o755)
  const ipam = {
    type: 'host-local',
    dataDir: `${dir}/pool`,
    ranges: [[{ subnet: '10.1.0.0/24' }], [{ subnet: 'fd00:1::/64' }]],
  }
  const place: Place = {
    dir,
    bridge: { type: 'bridge', bridge: 'br0', isDefaultGateway: true, ipMasq: true, ipam },
    configure: (...plugins) =>
      writeFileSync(
        `${dir}/10-net.conflist`,
        JSON.stringify({
          cniVersion: (plugins[0] as { cniVersion?: string }).cniVersion ?? '1.1.0',
          name: 'net',
          plugins,
        }),
      ),
    plumb: (argv, before = []) =>
      node.exec([...before, `${DIST}/plumb`, 'cni', ...argv, '--cache-dir', `${dir}/cache`], {
        env: { NETCONFPATH: dir, CNI_PATH: DIST },
      }),
    async told(argv, before) {
      const { status, stdout, stderr } = await place.plumb(['explain', 'net', '--json', ...argv], before)
      assert.deepEqual([status, stderr], [0, ''], stdout)
      return JSON.parse(stdout)
    },
  }
  place.configure(place.bridge, { type: 'portmap', capabilities: { portMappings: true } })
  return place
}

/**
 * The changes in a trace: any of those calls, but the program's own start, files opened to be read, threads, and what a
 * runtime says to itself.
 */
function changes(trace: string): string[] {
  return trace.split('\n').filter((row) => {
    const call = row.replace(/^\d+ +/, '')
    if (call === '' || /^(\+\+\+|---|<\.\.\.)/.test(call) || /^execve\("[^"]*\/plumb"/.test(call)) return false
    if (/^open/.test(call))
      return /O_(WRONLY|RDWR|CREAT|TRUNC|APPEND)/.test(call) && !/\/dev\/(null|urandom)/.test(call)
    // A question about a link (RTM_GETLINK): what a bridge that is there is like.
    if (/^sendto\(.*nlmsg_type=(0x12|RTM_GETLINK)\b.*nlmsg_flags=NLM_F_REQUEST,/.test(call)) return false
    return !/^clone3?\(.*CLONE_THREAD/.test(call)
  })
}

// Without the addresses that the bridge learns of what pods happen to send.
async function look(node: Namespace): Promise<string> {
  return (await snapshot(node)).replace(/^\S+ dev veth\w+ master \w+ \n/gm, '')
}

function addresses({ result }: Pick<Explanation, 'result'>): string[] {
  return ((result?.['ips'] ?? []) as { address: string }[]).map(({ address }) => address)
}
