// lane: netns
// Tests test/support.
import assert from 'node:assert/strict'
import { existsSync, writeFileSync } from 'node:fs'
import { inNamespaces, isSilent, ping, snapshot, until } from './harness.ts'

describe('inNamespaces()', () => {
  it(
    'gives namespaces that reach each other through what is wired between them, and only through that',
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      assert.ok(await isSilent(node, '10.9.0.2'))
      await node.ip('link', 'add', 'left', 'type', 'veth', 'peer', 'name', 'right', 'netns', pod.path)
      await node.ip('addr', 'add', '10.9.0.1/24', 'dev', 'left')
      await pod.ip('addr', 'add', '10.9.0.2/24', 'dev', 'right')
      await node.ip('link', 'set', 'left', 'up')
      await pod.ip('link', 'set', 'right', 'up')
      await until(() => ping(node, '10.9.0.2'))
      assert.deepEqual((await pod.json('link')).map(({ ifname }) => ifname).sort(), ['lo', 'right'])
    }),
  )

  it('removes the namespaces when the test throws', async function () {
    let path = ''
    const broken = inNamespaces(['gone'], async ({ gone }) => {
      path = gone.path
      assert.ok(existsSync(path))
      throw new Error('on purpose')
    })
    await assert.rejects(broken.call(this), /on purpose/)
    assert.ok(!existsSync(path))
  })
})

describe('snapshot()', () => {
  const changes: Record<string, readonly string[]> = {
    'a link': ['ip', 'link', 'add', 'x', 'type', 'bridge'],
    'a changed mtu': ['ip', 'link', 'set', 'lo', 'mtu', '1400'],
    'an address': ['ip', 'addr', 'add', '10.9.0.1/32', 'dev', 'lo'],
    'a route': ['ip', 'route', 'add', 'blackhole', '10.9.1.0/24'],
    'a rule': ['ip', 'rule', 'add', 'from', '10.9.0.0/24', 'table', '99'],
    'a fixed neighbour': [
      'ip',
      'neighbour',
      'add',
      '10.9.0.9',
      'lladdr',
      '02:00:00:00:00:09',
      'dev',
      'lo',
      'nud',
      'permanent',
    ],
    'an nft table': ['nft', 'add', 'table', 'inet', 'x'],
    'an iptables chain': ['iptables', '-N', 'X'],
    'a sysctl': ['sh', '-c', 'echo 1 >/proc/sys/net/ipv4/conf/lo/route_localnet'],
  }
  for (const [what, argv] of Object.entries(changes)) {
    it(
      `shows ${what}, and nothing when nothing changed`,
      inNamespaces(['node'], async ({ node }) => {
        const before = await snapshot(node)
        assert.equal(await snapshot(node), before)
        const { status, stderr } = await node.exec(argv)
        assert.equal(status, 0, stderr)
        assert.notEqual(await snapshot(node), before)
      }),
    )
  }
})

describe('the sandbox of test/run.ts', () => {
  it('keeps what a test writes below /run, /etc and /var/lib to itself', () => {
    for (const dir of ['/run', '/etc', '/var/lib']) {
      const file = `${dir}/plumb-sandbox-test`
      assert.ok(!existsSync(file), `${file} is left from another run`)
      writeFileSync(file, '')
    }
  })
})
