import assert from 'node:assert/strict'
import { existsSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { cnitool, references } from '../../scripts/peers.ts'
import { type Namespace, ping, type Row } from '../harness.ts'
import { skip } from '../skip.ts'
import { DIST, folder, left, on, onFreshNode } from './tool.ts'

const CONF = join(import.meta.dir, '../../conf')
const NOTHING = { cached: [], reserved: [], ports: [] }
const tool = cnitool()
/** Every file in conf/ that is a network; a sample that is added there is run here. */
const SAMPLES = readdirSync(CONF)
  .filter((name) => /\.(conf|conflist|json)$/.test(name))
  .map((file) => {
    const { name, cniVersion, cniVersions = [], ...conf } = JSON.parse(readFileSync(join(CONF, file), 'utf8'))
    const [first] = conf.plugins ?? [conf]
    // cnitool 1.1 knows one key of the two.
    return { file, name: name as string, cniVersion: ((!tool?.version.startsWith('1.1.') && cniVersions.at(-1)) || cniVersion) as string, type: first.type as string }
  })

describe('cnitool over plumb', () => {
  before(function () {
    if (!tool) skip(this, 'no cnitool could be built (see scripts/peers.ts)')
  })

  it('runs every file of conf/ that holds JSON', () => {
    const json = readdirSync(CONF).filter((name) => readFileSync(join(CONF, name), 'utf8').trimStart().startsWith('{'))
    assert.deepEqual(SAMPLES.map(({ file }) => file).sort(), json.sort())
    assert.ok(SAMPLES.length > 0)
  })

  for (const { file, name, cniVersion, type } of SAMPLES) {
    for (const netns of ['live', 'gone'] as const) {
      it(
        `conf/${file}: add, check, del and del again, with the namespace ${netns}, leave nothing`,
        onFreshNode(['node', 'pod', 'other'], async ({ node, pod, other }) => {
          const { call, works } = on(node, CONF)
          const added: Row = JSON.parse(await works(['add', name, pod.path]))
          assert.equal(added['cniVersion'], cniVersion)
          const ifname = type === 'loopback' ? 'lo' : 'eth0'
          const held = (await pod.json('addr', 'show', ifname))[0]?.['addr_info'].filter(({ scope, local }: Row) => scope !== 'link' || local === '::1')
          assert.deepEqual(
            added['ips'].map(({ address }: Row) => address),
            held.map(({ local, prefixlen }: Row) => `${local}/${prefixlen}`),
          )
          for (const { gateway } of added['ips']) if (gateway) assert.ok(await ping(pod, gateway), `no answer from the gateway ${gateway}`)
          assert.equal(await works(['check', name, pod.path]), '')
          // The address is not to be had twice, and goes with its own pod.
          await works(['add', name, other.path])
          if (netns === 'gone') await node.ip('netns', 'delete', pod.path.replace('/run/netns/', ''))
          for (const again of ['', ' again']) assert.equal(await works(['del', name, pod.path]), '', `del${again}`)
          const one = await left(node, name)
          assert.deepEqual([one.cached.length, one.reserved.length], [1, added['ips'].length * Number(type !== 'loopback')])
          assert.equal(await works(['check', name, other.path]), '')
          await works(['del', name, other.path])
          assert.deepEqual(await left(node, name), NOTHING)
          if (netns === 'live' && type !== 'loopback')
            assert.deepEqual(
              (await pod.json('link')).map(({ ifname }) => ifname),
              ['lo'],
            )
          const late = await call(['check', name, other.path])
          assert.notEqual(late.status, 0, 'CHECK of what is gone')
        }),
      )
    }

    it(
      `conf/${file}: answers what the reference plugins answer, but for names and what 1.1.0 adds`,
      onFreshNode(['node', 'pod', 'theirs', 'peer'], async ({ node, pod, theirs, peer }, test) => {
        const [reference] = references()
        if (!reference) return skip(test, 'no reference plugins (package containernetworking-plugins)')
        if (!existsSync(join(reference.path, type))) return skip(test, `${type} is none of the reference plugins; test/netns/${type}.test.ts has what it asked for`)
        const ours = JSON.parse(await on(node, CONF).works(['add', name, pod.path]))
        await on(node, CONF).works(['del', name, pod.path])
        rmSync('/var/lib/cni', { recursive: true })
        const expected = JSON.parse(await on(theirs, CONF, reference.path).works(['add', name, peer.path]))
        await on(theirs, CONF, reference.path).works(['del', name, peer.path])
        assert.deepEqual(nameless(ours), nameless(expected))
      }),
    )

    it(
      `conf/${file}: plumb cni and cnitool take over from each other, with the namespace live and gone`,
      onFreshNode(['node', 'one', 'two', 'three'], async ({ node, one, two, three }) => {
        const { works } = on(node, CONF)
        const plumb = (...argv: string[]) => works(argv, [join(DIST, 'plumb'), 'cni'])
        await works(['add', name, one.path])
        await works(['add', name, two.path])
        await plumb('add', name, three.path)
        await plumb('check', name, one.path)
        await works(['check', name, three.path])
        await plumb('del', name, one.path)
        await node.ip('netns', 'delete', two.path.replace('/run/netns/', ''))
        await plumb('del', name, two.path)
        await works(['del', name, three.path])
        assert.deepEqual(await left(node, name), NOTHING)
      }),
    )
  }

  it(
    'gc removes what the cache holds; with no list from cnitool plumb frees nothing else and says so; plumb cni gc --all does',
    onFreshNode(['node', 'pod', 'other'], async ({ node, pod, other }, test) => {
      needs13(test)
      const { call, works } = on(node, CONF)
      await works(['add', 'pods', pod.path])
      await works(['add', 'pods', other.path])
      // As after a crash of the runtime: only the plugins still know of this one.
      rmSync(`/var/lib/cni/results/pods-${idOf(other)}-eth0`)
      const done = await call(['gc', 'pods', pod.path])
      assert.equal(done.status, 0, done.stderr)
      assert.match(done.stderr, /GC without "cni.dev\/valid-attachments" frees nothing/)
      const { cached, reserved, ports } = await left(node, 'pods')
      assert.deepEqual([cached, reserved.length, ports.length], [[], 2, 1])
      assert.match(await elements(node), /10\.244\.0\.0\/24/)
      await works(['gc', 'pods', '--all'], [join(DIST, 'plumb'), 'cni'])
      assert.deepEqual([await left(node, 'pods'), await elements(node)], [NOTHING, ''])
    }),
  )

  it(
    'status is ready, and tells that the pool is full',
    onFreshNode(['node', 'pod', 'other'], async ({ node, pod, other }, test) => {
      needs13(test)
      const conf = { cniVersion: '1.1.0', name: 'small', plugins: [{ type: 'bridge', bridge: 'br0', ipam: { type: 'host-local', ranges: [[{ subnet: '10.9.0.0/24', rangeStart: '10.9.0.9', rangeEnd: '10.9.0.9' }]] } }] }
      const { call, works } = on(node, folder(conf))
      assert.equal(await works(['status', 'small', pod.path]), '')
      await works(['add', 'small', pod.path])
      const full = await call(['status', 'small', pod.path])
      assert.notEqual(full.status, 0)
      assert.match(full.stdout + full.stderr, /10\.9\.0\.9/)
      const refused = await call(['add', 'small', other.path])
      assert.notEqual(refused.status, 0)
      assert.match(refused.stdout + refused.stderr, /10\.9\.0\.9/)
      assert.deepEqual(
        (await other.json('link')).map(({ ifname }) => ifname),
        ['lo'],
      )
      await works(['del', 'small', pod.path])
      assert.equal(await works(['status', 'small', pod.path]), '')
    }),
  )

  for (const { file, name, cniVersion } of SAMPLES) {
    it(
      `conf/${file}: status and gc of cnitool end well, though CNI ${cniVersion} may have neither`,
      onFreshNode(['node', 'pod'], async ({ node, pod }, test) => {
        needs13(test)
        for (const verb of ['status', 'gc']) assert.equal((await on(node, CONF).call([verb, name, pod.path])).status, 0)
      }),
    )
  }
})

function needs13(test: Mocha.Context): void {
  if (tool?.version.startsWith('1.1.')) skip(test, `cnitool ${tool.version} has neither status nor gc; 1.3.0 is built where Go is 1.24 or later`)
}

async function elements(node: Namespace): Promise<string> {
  const texts = await Promise.all(['masq4', 'masq6', 'local4', 'local6'].map(async (set) => (await node.exec(['nft', 'list', 'set', 'inet', 'plumb', set])).stdout))
  return texts.flatMap((text) => /elements = \{([^}]*)\}/.exec(text)?.[1] ?? []).join('\n')
}

/** cnitool's container id of a namespace (libcni: the first ten bytes of sha512 of its path). */
function idOf({ path }: Namespace): string {
  return `cnitool-${new Bun.CryptoHasher('sha512').update(path).digest('hex').slice(0, 20)}`
}

// Links have names and MACs of each one's own making; no reference plugin has an mtu to tell.
function nameless(result: Row): Row {
  const interfaces = result['interfaces'].map(({ name, sandbox }: Row) => ({ name: name.replace(/^veth[0-9a-f]+$/, 'veth'), inPod: sandbox !== undefined }))
  return { ...result, interfaces }
}
