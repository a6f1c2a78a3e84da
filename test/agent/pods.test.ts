// lane: netns
// Tests agent: one or several agents on nodes of their own.
import assert from 'node:assert/strict'
import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { type Answer, ping, plugin, until } from '../support/harness.ts'
import { fileStore, inCluster, type Node } from '../support/nodes.ts'

const PLUMB = join(import.meta.dir, '../../dist/plumb')
const CONF = { Network: '10.244.0.0/16', EnableIPv6: true, IPv6Network: 'fd00:244::/48', Backend: { Type: 'vxlan' } }

describe('plumb agent --install-cni', () => {
  it(
    'plugins and network are there when the node is ready and not before, pods of two nodes reach each other by them, and cleanup is refused while a pod lives; by force it leaves what was there before',
    inCluster(
      4,
      (cluster) => ['--store', 'file', '--file-store-dir', join(cluster.dir, 'store'), '--install-cni'],
      async (cluster, test) => {
        test.timeout(60_000)
        const [one, two, three, four] = cluster.nodes as [Node, Node, Node, Node]
        mkdirSync(join(one.dir, 'bin'))
        writeFileSync(join(one.dir, 'bin/bridge'), 'the one before', { mode: 0o755 })
        const path = (node: Node) => join(node.dir, 'net.d/10-flannel.conflist')
        const agents = [one, two].map((node) => node.agent())
        await until(() =>
          agents.every((agent) => /waiting: the network’s configuration is not known yet/.test(agent.log())),
        )
        for (const node of [one, two]) assert.equal(existsSync(path(node)), false)
        fileStore(cluster, CONF)
        for (const agent of agents) await agent.ready(20_000)
        await until(() => existsSync(path(one)) && existsSync(path(two)))
        const added = [await add(one, three, path(one)), await add(two, four, path(two))] as const
        for (const [from, to] of [
          [three, added[1]],
          [four, added[0]],
        ] as const)
          for (const { address } of to.result['ips']) await until(() => ping(from.ns, address.split('/')[0]))
        for (const agent of agents) await agent.stop()
        const cleanup = (...more: string[]) => one.ns.exec([PLUMB, 'agent', 'cleanup', ...more, ...one.options])
        const routes = () => one.ns.ip('route')
        const before = await routes()
        const refused = await cleanup()
        assert.equal(refused.status, 1)
        assert.match(
          refused.stderr,
          /Cannot clean up: \d of the pods that plumb attached lives?: cbr0 n3:eth0[^\n]*\n.*--force/,
        )
        assert.deepEqual([await routes(), existsSync(path(one))], [before, true])
        assert.equal((await cleanup('--force')).status, 0)
        assert.deepEqual(
          [existsSync(path(one)), readFileSync(join(one.dir, 'bin/bridge'), 'utf8')],
          [false, 'the one before'],
        )
      },
    ),
  )

  it(
    'forwarding that somebody switches off on one link of pods’ packets is back, and the doctor names it without an agent',
    inCluster(
      4,
      (cluster) => [...fileStore(cluster, CONF), '--install-cni'],
      async (cluster, test) => {
        test.timeout(60_000)
        const [one, two, three, four] = cluster.nodes as [Node, Node, Node, Node]
        const path = (node: Node) => join(node.dir, 'net.d/10-flannel.conflist')
        const agents = [one, two].map((node) => node.agent())
        for (const agent of agents) await agent.ready(20_000)
        await add(one, three, path(one))
        const added = await add(two, four, path(two))
        const address = added.result['ips'][0].address.split('/')[0]
        assert.ok(await until(() => ping(three.ns, address)))
        const links = ['flannel.1', 'cni0', 'eth0']
        for (const link of links) {
          const name = `net.ipv4.conf.${link.replace('.', '/')}.forwarding`
          await two.ns.exec(['sysctl', '-qw', `${name}=0`])
          await until(async () => (await two.ns.exec(['sysctl', '-n', name])).stdout === '1\n', 10_000)
          assert.ok(await ping(three.ns, address), link)
          const { repairs = [] } = (await agents[1]?.status()) ?? {}
          assert.ok(
            repairs.some(({ what }) => what.includes(name)),
            name,
          )
        }
        for (const agent of agents) await agent.stop()
        await two.ns.exec(['sysctl', '-qw', 'net.ipv4.conf.flannel/1.forwarding=0'])
        const { stdout } = await two.ns.exec([PLUMB, 'doctor', 'DR1', '--subnet-file', join(two.dir, 'subnet.env')])
        assert.match(
          stdout,
          /net\.ipv4\.conf\.flannel\/1\.forwarding is 0: what comes by flannel\.1 goes to no other link/,
        )
      },
    ),
  )

  it(
    'puts back the network and the plugins that somebody removes, and an empty network, but nothing after an uninstall',
    inCluster(
      1,
      (cluster) => [...fileStore(cluster, CONF), '--install-cni'],
      async ({ nodes }, test) => {
        test.timeout(150_000)
        const [one] = nodes as [Node]
        const [network, bridge] = [join(one.dir, 'net.d/10-flannel.conflist'), join(one.dir, 'bin/bridge')]
        const agent = one.agent()
        await agent.ready(20_000)
        const text = readFileSync(network, 'utf8')
        const isBack = () => existsSync(network) && readFileSync(network, 'utf8') === text && existsSync(bridge)
        for (const harm of [() => rmSync(network), () => rmSync(bridge), () => writeFileSync(network, '')]) {
          harm()
          assert.equal(isBack(), false)
          await until(isBack, 30_000)
          await until(async () => (await agent.readyz()).startsWith('200'), 30_000)
        }
        assert.match(agent.log(), /repaired changes of another program: [^\n]*10-flannel\.conflist/)
        const dirs = ['bin', 'net.d', 'state'].map((dir) => join(one.dir, dir)) as [string, string, string]
        const places = [`--bin-dir=${dirs[0]}`, `--conf-dir=${dirs[1]}`, `--state-dir=${dirs[2]}`]
        const { status, stderr } = await one.ns.exec([PLUMB, 'uninstall', '--force', ...places])
        assert.equal(status, 0, stderr)
        await sleep(6000)
        assert.deepEqual([existsSync(network), existsSync(bridge)], [false, false])
      },
    ),
  )

  it(
    'names in the log a network that comes before its own, and leaves one of its name that somebody else wrote',
    inCluster(
      1,
      (cluster) => [...fileStore(cluster, CONF), '--install-cni'],
      async ({ nodes }, test) => {
        test.timeout(150_000)
        const [one] = nodes as [Node]
        const [first, own] = [join(one.dir, 'net.d/05-other.conflist'), join(one.dir, 'net.d/10-flannel.conflist')]
        mkdirSync(join(one.dir, 'net.d'))
        for (const path of [first, own]) writeFileSync(path, '{}')
        const agent = one.agent()
        await agent.ready(20_000)
        await until(() => agent.log().includes(`${first} comes before ${own}: the container runtime takes that one`))
        await until(() => agent.log().includes(`${own} is not plumb's file and stays as it is`))
        assert.equal(readFileSync(own, 'utf8'), '{}')
      },
    ),
  )
})

// The first plugin of the network that the agent wrote, as a runtime calls it; the pod is another namespace.
async function add(node: Node, pod: Node, path: string): Promise<Answer> {
  const { name, cniVersion, plugins } = JSON.parse(readFileSync(path, 'utf8'))
  await pod.ns.ip('link', 'del', 'eth0')
  const bin = join(node.dir, 'bin')
  const conf = {
    ...plugins[0],
    name,
    cniVersion,
    dataDir: join(node.dir, 'flannel'),
    ipam: { dataDir: join(node.dir, 'networks') },
  }
  const done = await plugin(
    plugins[0].type,
    { command: 'ADD', conf, containerId: pod.name, netns: pod.ns, path: bin, file: join(bin, plugins[0].type) },
    node.ns,
  )
  assert.equal(done.status, 0, done.stdout)
  return done
}
