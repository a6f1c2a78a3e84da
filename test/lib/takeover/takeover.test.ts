// lane: peers
// Tests lib/takeover and plugins, with pods of the reference plugins.
import assert from 'node:assert/strict'
import { existsSync } from 'node:fs'
import { inNamespaces } from '../../support/harness.ts'
import { type Desk, type Entry, makeDesk, netConf, PLUGINS } from '../../support/node-by-hand.ts'
import { skip } from '../../support/skip.ts'

describe('plumb cni and cnitool', () => {
  let desk: Desk
  beforeEach(function () {
    if (!existsSync(`${PLUGINS}/bridge`)) skip(this, `no reference plugins in ${PLUGINS}`)
    desk = makeDesk()
  })
  afterEach(() => desk?.remove())

  it(
    'takes over what cnitool attached, under either spelling of the path, and the other way round, with equal cache files',
    inNamespaces(['node', 'pod'], async ({ node, pod }, test) => {
      const { cnitool } = desk
      if (!cnitool) return skip(test, 'no cnitool')
      const env = { CNI_ARGS: 'IgnoreUnknown=1;K=V', CAP_ARGS: '{"mac":"02:00:00:00:00:09"}', CNI_IFNAME: 'net0' }
      desk.conf('10-net.conflist', netConf(desk.dir, { capabilities: { mac: true } }))
      const spelled = pod.path.replace('/run/', '/var/run/')
      assert.equal((await cnitool(node, ['add', 'net', spelled], env)).status, 0)
      const theirs = desk.cached()
      assert.equal((await desk.plumb(node, ['check', 'net', pod.path], env)).status, 0)
      assert.equal((await desk.plumb(node, ['del', 'net', pod.path], { CNI_IFNAME: 'net0' })).status, 0)
      assert.deepEqual([desk.cached(), desk.reserved()], [{}, []])
      assert.equal((await desk.plumb(node, ['add', 'net', spelled], env)).status, 0)
      assert.deepEqual(forgetful(desk.cached()), forgetful(theirs))
      assert.equal((await cnitool(node, ['check', 'net', spelled], env)).status, 0)
      const gone = await cnitool(node, ['del', 'net', spelled], env)
      assert.equal(gone.status, 0, gone.stderr)
      assert.deepEqual([desk.cached(), desk.reserved(), (await pod.json('link')).length], [{}, [], 1])
    }),
  )
  for (const [file, content] of [
    [
      '10-old.conf',
      {
        cniVersion: '0.2.0',
        name: 'old',
        type: 'bridge',
        bridge: 'br8',
        ipam: { type: 'host-local', subnet: '10.8.0.0/24' },
      },
    ],
    ['10-lo.conflist', { cniVersion: '0.3.1', name: 'old', plugins: [{ type: 'loopback' }] }],
  ] as const) {
    it(
      `reads ${file} as cnitool does`,
      inNamespaces(['node', 'pod'], async ({ node, pod }, test) => {
        const { cnitool } = desk
        if (!cnitool) return skip(test, 'no cnitool')
        desk.conf(file, content)
        const theirs = await cnitool(node, ['add', 'old', pod.path])
        assert.equal(theirs.status, 0, theirs.stderr)
        const [entry] = Object.values(desk.cached())
        assert.equal((await desk.plumb(node, ['del', 'old', pod.path])).status, 0)
        const ours = await desk.plumb(node, ['add', 'old', pod.path, '--json'])
        assert.equal(ours.status, 0, ours.stderr)
        assert.deepEqual(Object.keys(JSON.parse(ours.stdout)), Object.keys(JSON.parse(theirs.stdout)))
        assert.deepEqual(Object.values(desk.cached()).map(parts), [entry].map(parts))
        assert.equal((await cnitool(node, ['del', 'old', pod.path])).status, 0)
        assert.deepEqual(desk.cached(), {})
      }),
    )
  }
})

/**
 * Without what the kernel or the pool made up (names, macs, the address that was next), keys sorted, without the empty
 * dns that libcni drops from 1.0.0 on.
 */
function forgetful(entries: Record<string, Entry>): string {
  const sorted = (value: Entry): Entry =>
    typeof value === 'object' && !Array.isArray(value)
      ? Object.fromEntries(
          Object.keys(value)
            .sort()
            .map((key) => [key, sorted(value[key])]),
        )
      : Array.isArray(value)
        ? value.map(sorted)
        : value
  return JSON.stringify(sorted(Object.entries(entries)))
    .replace(/veth[0-9a-f]+|([0-9a-f]{2}:){5}[0-9a-f]{2}|10\.9\.0\.\d+/g, '…')
    .replace('"dns":{},', '')
}

function parts(entry: Entry): unknown {
  const { config, result, ...rest } = entry
  return { ...rest, config: JSON.parse(Buffer.from(config, 'base64').toString()), result: Object.keys(result).sort() }
}
