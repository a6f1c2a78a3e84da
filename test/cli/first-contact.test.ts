// lane: netns
// Tests the first call of a new user: plugins and cli.
import assert from 'node:assert/strict'
import { mkdirSync, mkdtempSync, readdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { inNamespaces, type Namespace, plugin } from '../support/harness.ts'
import { hasKind } from '../support/kinds.ts'
import { bridgeConf, network } from '../support/network.ts'
import { skip } from '../support/skip.ts'
import { shimmed } from '../support/tool-shims.ts'

const DIST = join(import.meta.dir, '../../dist')
const PLUMB = join(DIST, 'plumb')
const LIST = {
  cniVersion: '1.1.0',
  name: 'net',
  plugins: [
    { type: 'bridge', isDefaultGateway: true, ipam: { type: 'host-local', ranges: [[{ subnet: '10.1.0.0/24' }]] } },
  ],
}

function conf(list: object | string): string {
  const dir = mkdtempSync('/run/net.d-')
  writeFileSync(join(dir, '10-net.conflist'), typeof list === 'string' ? list : JSON.stringify(list))
  return dir
}

function plumb(node: Namespace, argv: readonly string[], as: readonly string[] = []): ReturnType<Namespace['exec']> {
  return node.exec([...as, PLUMB, ...argv])
}

describe('the first minutes with plumb', () => {
  it(
    '`plumb cni add` refuses a key that no plugin knows, with the nearest one, before anything is made; --lenient and runtimes pass it over',
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      const wrong = { ...LIST, plugins: [{ ...LIST.plugins[0], brigde: 'br1', portMappings: { snatt: true } }] }
      const where = ['--conf-dir', conf(wrong), '--bin-dir', DIST, '--cache-dir', mkdtempSync('/run/cache-')]
      for (const command of ['add', 'explain']) {
        const { status, stderr } = await plumb(node, ['cni', command, 'net', pod.path, ...where])
        assert.equal(status, 2)
        assert.equal(
          stderr,
          'Cannot use network net: plugin bridge: unknown key "brigde", did you mean "bridge"?; plugin bridge, "portMappings": unknown key "snatt", did you mean "snat"?; with --lenient plugins pass such keys over, as they do for a runtime\n',
        )
      }
      assert.deepEqual(
        (await node.json('link')).map(({ ifname }) => ifname),
        ['lo'],
      )
      const lenient = await plumb(node, ['cni', 'add', 'net', pod.path, '--lenient', ...where])
      assert.equal(lenient.status, 0, lenient.stderr)
      assert.match(lenient.stderr, /unknown key "brigde"/)
      assert.equal((await plumb(node, ['cni', 'del', 'net', pod.path, ...where])).status, 0)
    }),
  )

  it(
    'a reader that has seen enough ends a command quietly',
    inNamespaces(['node'], async ({ node }) => {
      const { stdout, stderr } = await node.exec([
        'bash',
        '--norc',
        '-c',
        `for i in 1 2 3 4 5; do "$0" --help | head -n 1; "$0" cni --help | true; done`,
        PLUMB,
      ])
      assert.match(stdout, /^(\S.*\n){5}$/)
      assert.equal(stderr, '')
    }),
  )

  it(
    'a configuration that is not JSON is told with line and column: a list of plugins, and net-conf.json',
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      const text = '{\n  "cniVersion": "1.1.0",\n  "name": "net"\n  "plugins": []\n}'
      const { status, stderr } = await plumb(node, [
        'cni',
        'add',
        'net',
        pod.path,
        '--conf-dir',
        conf(text),
        '--bin-dir',
        DIST,
      ])
      assert.equal(status, 2)
      assert.match(stderr, /10-net\.conflist: it is not JSON: line 4, column 3: comma expected/)
      const dir = mkdtempSync('/run/store-')
      writeFileSync(join(dir, 'config'), '{\n  "Network": "10.244.0.0/16",\n}')
      const agent = await plumb(node, [
        'agent',
        '--store',
        'file',
        '--file-store-dir',
        dir,
        '--subnet-file',
        join(dir, 'subnet.env'),
        '--state-dir',
        dir,
        '--socket',
        join(dir, 'sock'),
      ])
      assert.equal(agent.status, 1)
      assert.match(
        agent.stderr,
        /Cannot read the network's configuration: .*\(line 3, column 1: property name expected\)/,
      )
    }),
  )

  it(
    'without root a command says that it needs root, and how',
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      const where = ['--conf-dir', conf(LIST), '--bin-dir', DIST]
      for (const argv of [
        ['cni', 'add', 'net', pod.path, ...where],
        ['install', '--bin-dir', '/opt/none/bin', '--state-dir', '/opt/none/state'],
        ['demo', 'pods'],
      ]) {
        const { status, stderr } = await plumb(node, argv, [
          'setpriv',
          '--reuid=65534',
          '--regid=65534',
          '--clear-groups',
          '--',
        ])
        assert.notEqual(status, 0)
        assert.match(stderr, /root/, argv.join(' '))
        assert.match(stderr, /sudo/, argv.join(' '))
      }
    }),
  )

  it(
    'files for TLS that hold something else are named with their option',
    inNamespaces(['node'], async ({ node }) => {
      const dir = mkdtempSync('/run/tls-')
      mkdirSync(dir, { recursive: true })
      writeFileSync(join(dir, 'ca.pem'), 'no certificate')
      const files = ['--etcd-certfile', join(dir, 'ca.pem'), '--etcd-keyfile', join(dir, 'ca.pem')]
      for (const [options, what] of [
        [['--etcd-cafile', join(dir, 'ca.pem')], 'a certificate (--etcd-cafile)'],
        [files, 'a certificate (--etcd-certfile)'],
      ] as const) {
        const { status, stderr } = await plumb(node, [
          'agent',
          '--etcd-endpoints',
          'https://127.0.0.1:2379',
          ...options,
          '--subnet-file',
          join(dir, 'subnet.env'),
          '--state-dir',
          dir,
          '--socket',
          join(dir, 'sock'),
        ])
        assert.notEqual(status, 0)
        assert.ok(
          stderr.includes(`Cannot use ${dir}/ca.pem for TLS with etcd: it does not hold ${what}; want a PEM file`),
          stderr,
        )
      }
    }),
  )

  it(
    'a kernel module that is missing is named with what loads it',
    inNamespaces(['node', 'pod'], async ({ node, pod }, test) => {
      if (hasKind('dummy')) skip(test, 'this kernel has dummy: there is no module to miss')
      const { stdout } = await node.exec([join(DIST, 'dummy')], {
        stdin: JSON.stringify({
          cniVersion: '1.1.0',
          name: 'net',
          type: 'dummy',
          ipam: { type: 'static', addresses: [{ address: '10.1.0.2/24' }] },
        }),
        env: { CNI_COMMAND: 'ADD', CNI_CONTAINERID: 'c1', CNI_IFNAME: 'eth0', CNI_NETNS: pod.path, CNI_PATH: DIST },
      })
      assert.match(JSON.parse(stdout).details, /^this kernel has no links of type dummy: modprobe dummy/)
    }),
  )
})

describe('what is told, and what goes with the last pod', () => {
  for (const [what, mount] of Object.entries({
    full: 'mount -t tmpfs -o size=4k tmpfs /run/cni; mkdir -p /run/cni/plumb; head -c 100000 /dev/zero >/run/cni/fill 2>/dev/null || true',
    'read-only': 'mkdir -p /run/cni; mount --bind /run/cni /run/cni; mount -o remount,bind,ro /run/cni',
  }))
    it(
      `STATUS says code 50, and what cannot be written, while /run/cni is ${what}`,
      inNamespaces(['node'], async ({ node }) => {
        const { file } = shimmed('bridge', {}, mount)
        const { status, error } = await plugin(
          'bridge',
          { command: 'STATUS', conf: bridgeConf(), netns: null, containerId: null, ifname: null, file },
          node,
        )
        assert.equal(status, 1)
        assert.deepEqual([error.code, error.msg], [50, 'Cannot write to /run/cni/plumb: no pod can be attached'])
        assert.match(error.details, /ENOSPC|EROFS/)
      }),
    )

  it(
    'GC with an empty list takes the chains of iptables and the index of the pool with the last pod',
    inNamespaces(['node', 'pod', 'other'], async ({ node, pod, other }) => {
      await node.exec(['iptables', '-P', 'FORWARD', 'DROP'])
      const one = network(node, bridgeConf({ isDefaultGateway: true, firewall: true }))
      const two = network(node, bridgeConf({ bridge: 'br1', isDefaultGateway: true, firewall: true }, '10.2.0.0/24'))
      await one.add(pod)
      await two.add(other)
      const rules = async () => (await node.exec(['iptables-save'])).stdout
      await one.gc()
      assert.match(await rules(), /PLUMB-PODS/)
      await two.gc()
      assert.doesNotMatch(await rules(), /PLUMB-PODS|CNI-ADMIN/)
      assert.match(await rules(), /:FORWARD DROP/)
      for (const { conf } of [one, two]) assert.deepEqual(readdirSync(`${conf.ipam?.dataDir}/.plumb`), [])
    }),
  )
})
