// lane: peers
// needs: reference
// Tests plugins, called by cnitool.
import assert from 'node:assert/strict'
import { existsSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { cnitool, references } from '../../scripts/peers.ts'
import { DIST, everyVerb, folder, left, NOTHING, on, onFreshNode, type Tool } from '../support/cnitool.ts'
import { provide } from '../support/dhcp.ts'
import { type Namespace, ping, type Row, until } from '../support/harness.ts'
import { lackingKinds, needsKind, needsTwo, wireMaster } from '../support/kinds.ts'
import { wireLan } from '../support/lan.ts'
import { addresses } from '../support/pool.ts'
import { LENDING, SAMPLES, type Sample } from '../support/samples.ts'
import { skip } from '../support/skip.ts'

const CONF = join(import.meta.dir, '../../conf')
const tool = cnitool()
describe('cnitool over plumb', () => {
  before(function () {
    if (!tool) skip(this, 'no cnitool could be built (see scripts/peers.ts)')
  })

  for (const sample of SAMPLES) {
    const { file, name, cniVersion, type, pool } = sample
    for (const netns of ['live', 'gone'] as const) {
      it(
        `conf/${file}: add, check, del and del again, with the namespace ${netns}, leave nothing`,
        onFreshNode(['node', 'pod', 'other'], async ({ node, pod, other }, test) => {
          await furnish(sample, test, node)
          await provide(sample, node)
          const [one, two] = [tooled(sample, node, 1), tooled(sample, node, 2)]
          const added: Row = JSON.parse(await one.works(['add', name, pod.path]))
          assert.equal(added['cniVersion'], cniVersion)
          const ifname = type === 'loopback' ? 'lo' : 'eth0'
          const held = (await pod.json('addr', 'show', ifname))[0]?.['addr_info'].filter(
            ({ scope, local }: Row) => scope !== 'link' || local === '::1',
          )
          assert.deepEqual(
            addresses(added),
            held.map(({ local }: Row) => local),
          )
          for (const { gateway } of added['ips'] ?? [added['ip4']])
            if (gateway) assert.ok(await until(() => ping(pod, gateway)), `no answer from the gateway ${gateway}`)
          await checks(sample, one, pod)
          // The address cannot be taken twice, and goes with its own pod.
          await two.works(['add', name, other.path])
          if (netns === 'gone') await node.ip('netns', 'delete', pod.path.replace('/run/netns/', ''))
          for (const again of ['', ' again']) assert.equal(await one.works(['del', name, pod.path]), '', `del${again}`)
          const rest = await left(node, name)
          assert.deepEqual(
            [rest.cached.length, rest.reserved.length],
            [1, addresses(added).length * Number(pool === 'host-local')],
          )
          await checks(sample, two, other)
          await two.works(['del', name, other.path])
          assert.deepEqual(await left(node, name), NOTHING)
          if (netns === 'live' && type !== 'loopback')
            assert.deepEqual(
              (await pod.json('link')).map(({ ifname }) => ifname),
              ['lo'],
            )
          const late = await two.call(['check', name, other.path])
          assert.notEqual(late.status, 0, 'CHECK of what is gone')
        }),
      )
    }

    // Below 1.0.0 the reference loopback does not name the family of its addresses; of minicni and flannel there is no
    // reference here, and the server gives dhcp what it likes.
    const isComparable =
      type !== 'minicni' && type !== 'flannel' && pool !== 'dhcp' && !(type === 'loopback' && cniVersion < '1.0.0')
    if (isComparable)
      it(
        `conf/${file}: answers what the reference plugins answer, except names and what 1.1.0 adds`,
        onFreshNode(['node', 'pod', 'theirs', 'peer'], async ({ node, pod, theirs, peer }, test) => {
          const [reference] = references()
          if (!reference) return skip(test, 'no reference plugins (package containernetworking-plugins)')
          const absent = sample.plugins.map((one) => one['type']).find((one) => !existsSync(join(reference.path, one)))
          if (absent) return skip(test, `the reference ${reference.version} has no ${absent}`)
          await furnish(sample, test, node, theirs)
          const ours = JSON.parse(await tooled(sample, node, 1).works(['add', name, pod.path]))
          await tooled(sample, node, 1).works(['del', name, pod.path])
          rmSync('/var/lib/cni', { recursive: true })
          const expected = JSON.parse(await tooled(sample, theirs, 1, reference.path).works(['add', name, peer.path]))
          await tooled(sample, theirs, 1, reference.path).works(['del', name, peer.path])
          assert.deepEqual(nameless(ours), nameless(expected))
        }),
      )

    it(
      `conf/${file}: plumb cni and cnitool take over from each other, with the namespace live and gone`,
      onFreshNode(['node', 'one', 'two', 'three'], async ({ node, one, two, three }, test) => {
        await furnish(sample, test, node)
        await provide(sample, node)
        const tools = [1, 2, 3].map((nth) => tooled(sample, node, nth)) as [Tool, Tool, Tool]
        const plumb = (nth: 0 | 1 | 2, ...argv: string[]) => tools[nth].works(argv, [join(DIST, 'plumb'), 'cni'])
        await tools[0].works(['add', name, one.path])
        await tools[1].works(['add', name, two.path])
        await plumb(2, 'add', name, three.path)
        if (cniVersion >= '0.4.0') await plumb(0, 'check', name, one.path)
        await checks(sample, tools[2], three)
        await plumb(0, 'del', name, one.path)
        await node.ip('netns', 'delete', two.path.replace('/run/netns/', ''))
        await plumb(1, 'del', name, two.path)
        await tools[2].works(['del', name, three.path])
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
      const conf = {
        cniVersion: '1.1.0',
        name: 'small',
        plugins: [
          {
            type: 'bridge',
            bridge: 'br0',
            ipam: {
              type: 'host-local',
              ranges: [[{ subnet: '10.9.0.0/24', rangeStart: '10.9.0.9', rangeEnd: '10.9.0.9' }]],
            },
          },
        ],
      }
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

  for (const sample of SAMPLES) {
    it(
      `conf/${sample.file}: check, status and gc of a pod, though CNI ${sample.cniVersion} may have none; gc leaves nothing, as del does`,
      onFreshNode(['node', 'pod'], async ({ node, pod }, test) => {
        needs13(test)
        for (const kind of lackingKinds(sample.plugins.map(({ type }) => type))) needsKind(test, kind)
        await wireMaster(node, sample.plugins)
        await provide(sample, node)
        await everyVerb(sample, node, pod)
      }),
    )
  }

  for (const sample of LENDING) {
    for (const netns of ['live', 'gone'] as const)
      it(
        `conf/${sample.file}: every verb; the node has its device again, from a namespace that is ${netns}`,
        onFreshNode(['node', 'pod'], async ({ node, pod }) => {
          await wireLan(node)
          await everyVerb(sample, node, pod)
          const { works } = on(node, sample.dir)
          await works(['add', sample.name, pod.path])
          if (netns === 'gone') await node.ip('netns', 'delete', pod.path.replace('/run/netns/', ''))
          for (let i = 0; i < 2; i++) await works(['del', sample.name, pod.path])
          assert.deepEqual(await left(node, sample.name), NOTHING)
          if (netns === 'live') assert.ok((await node.json('link')).some(({ ifname }) => ifname === 'eth1'))
        }),
      )
  }
})

// What the sample's first plugin needs to stand on.
async function furnish({ plugins }: Sample, test: Mocha.Context, ...nodes: readonly Namespace[]): Promise<void> {
  needsTwo(
    test,
    plugins.map(({ type }) => type),
  )
  for (const node of nodes) await wireMaster(node, plugins)
}

function needs13(test: Mocha.Context): void {
  if (tool?.version.startsWith('1.1.'))
    skip(test, `cnitool ${tool.version} has neither status nor gc; 1.3.0 is built where Go is 1.24 or later`)
}

async function elements(node: Namespace): Promise<string> {
  const texts = await Promise.all(
    ['masq4', 'masq6', 'local4', 'local6'].map(
      async (set) => (await node.exec(['nft', 'list', 'set', 'inet', 'plumb', set])).stdout,
    ),
  )
  return texts.flatMap((text) => /elements = \{([^}]*)\}/.exec(text)?.[1] ?? []).join('\n')
}

/** cnitool's container id of a namespace (libcni: the first ten bytes of sha512 of its path). */
function idOf({ path }: Namespace): string {
  return `cnitool-${new Bun.CryptoHasher('sha512').update(path).digest('hex').slice(0, 20)}`
}

/** cnitool in the folder of a sample, with what the runtime gives the pod of this number. */
function tooled({ dir, capabilities }: Sample, node: Namespace, nth: number, path = DIST): Tool {
  return on(node, dir, path, { CAP_ARGS: JSON.stringify(capabilities(nth)) })
}

/** CHECK passes, or its version has none. */
async function checks({ name, cniVersion }: Sample, { call, works }: Tool, pod: Namespace): Promise<void> {
  if (cniVersion >= '0.4.0') return assert.equal(await works(['check', name, pod.path]), '')
  const { status, stderr, stdout } = await call(['check', name, pod.path])
  assert.notEqual(status, 0)
  assert.match(stdout + stderr, /does not support the CHECK command/)
}

// Links have names and MACs of each one's own making; no reference plugin has an mtu to tell.
function nameless(result: Row): Row {
  if (!result['interfaces']) return result
  const interfaces = result['interfaces'].map(({ name, sandbox }: Row) => ({
    name: name.replace(/^(veth|bwp)[0-9a-f]+$/, '$1'),
    inPod: sandbox !== undefined,
  }))
  return { ...result, interfaces }
}
