// lane: netns
// Tests plugins/loopback.ts.
import assert from 'node:assert/strict'
import { inNamespaces, type Namespace, ping, plugin } from '../support/harness.ts'
import { type Conf, network } from '../support/network.ts'
import { testPlugin } from '../support/suites/testPlugin.ts'

const conf: Conf = { cniVersion: '1.1.0', name: 'lo', type: 'loopback' }

testPlugin({
  type: 'loopback',
  conf: () => conf,
  refused: (given) => ({ ...given, strict: 'yes' }),
  again: 'same',
  async works(pod) {
    assert.ok(await ping(pod, '127.0.0.1'))
    assert.ok(await ping(pod, '::1'))
  },
})

describe('loopback', () => {
  it(
    'ADD sets lo up and answers with its two addresses, whatever CNI_IFNAME says',
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      const result = await network(node, conf).add(pod, { ifname: 'eth0' })
      assert.deepEqual(result, {
        cniVersion: '1.1.0',
        interfaces: [{ name: 'lo', mac: '00:00:00:00:00:00', mtu: 65536, sandbox: pod.path }],
        ips: [
          { interface: 0, address: '127.0.0.1/8' },
          { interface: 0, address: '::1/128' },
        ],
      })
      assert.ok(await up(pod))
    }),
  )

  it(
    'ADD refuses an lo that holds an address of elsewhere, naming it',
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      await pod.ip('addr', 'add', '10.9.9.9/32', 'dev', 'lo')
      const error = await network(node, conf).fails('ADD', pod)
      assert.deepEqual(
        { code: error.code, msg: error.msg },
        { code: 7, msg: 'loopback interface is already configured with non-loopback address 10.9.9.9/32' },
      )
      assert.ok(!(await up(pod)), 'it was down before')
    }),
  )

  it(
    'DEL sets lo down, and CHECK fails from then on, naming it',
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      const net = network(node, conf)
      const result = await net.add(pod)
      await net.check(pod, result)
      await net.del(pod)
      assert.ok(!(await up(pod)))
      const { msg, details } = await net.fails('CHECK', pod, { conf: { ...conf, prevResult: result } })
      assert.match(`${msg}. ${details}`, new RegExp(`^Cannot confirm lo in ${pod.path}: it is down. want it up`))
    }),
  )

  it(
    'ADD passes a prevResult through',
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      const prevResult = {
        cniVersion: '1.1.0',
        interfaces: [{ name: 'eth0', mac: '02:00:00:00:00:01', sandbox: pod.path }],
        ips: [{ interface: 0, address: '10.1.0.2/24', gateway: '10.1.0.1' }],
        routes: [{ dst: '0.0.0.0/0' }],
      }
      assert.deepEqual(await network(node, conf).add(pod, { conf: { ...conf, prevResult } }), prevResult)
      assert.ok(await up(pod))
    }),
  )

  it(
    'ADD with a prevResult that cannot be read refuses it and leaves lo down',
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      const { code, msg } = await network(node, conf).fails('ADD', pod, {
        conf: { ...conf, prevResult: { cniVersion: '1.1.0', ips: [{ address: '10.1.0.300/24' }] } },
      })
      assert.equal(code, 7)
      assert.equal(
        msg,
        'Cannot read prevResult.ips[0].address "10.1.0.300/24": want an address with a prefix length such as 10.1.0.0/24 or fd00::/64',
      )
      assert.ok(!(await up(pod)))
    }),
  )

  it(
    'ADD in a namespace that is gone, and in a file that is none, says so',
    inNamespaces(['node'], async ({ node }) => {
      const gone = await plugin('loopback', { command: 'ADD', conf, netns: '/run/netns/nope' }, node)
      assert.deepEqual(
        { status: gone.status, code: gone.error.code, msg: gone.error.msg },
        { status: 1, code: 3, msg: 'Cannot open the network namespace /run/netns/nope: no such file' },
      )
      const other = await plugin('loopback', { command: 'ADD', conf, netns: '/etc/passwd' }, node)
      assert.deepEqual(
        { status: other.status, code: other.error.code, msg: other.error.msg },
        { status: 1, code: 4, msg: 'Cannot use CNI_NETNS /etc/passwd: it is not a network namespace' },
      )
    }),
  )
})

async function up(pod: Namespace): Promise<boolean> {
  const [lo] = await pod.json('link', 'show', 'dev', 'lo')
  return lo?.['flags'].includes('UP')
}
