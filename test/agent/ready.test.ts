// lane: long
// Tests agent: one or several agents on nodes of their own.
import assert from 'node:assert/strict'
import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { ping, until } from '../support/harness.ts'
import { PASS } from '../support/missing-tools.ts'
import { type Agent, type Cluster, fileStore, inCluster, type Node, subnetEnv } from '../support/nodes.ts'
import { shimmed } from '../support/tool-shims.ts'

const VXLAN = { Network: '10.244.0.0/16', Backend: { Type: 'vxlan' } }
const PLUMB = join(import.meta.dir, '../../dist/plumb')

describe('plumb agent: ready, degraded, not ready', () => {
  it(
    'a lease that collides with a route of the node degrades it: it is ready and installed all the same, the others are reached, the reason stands at the peer and in every place, until the route is gone',
    inCluster(
      3,
      (cluster) => [...fileStore(cluster, VXLAN), '--install-cni', '--allow-overlap'],
      async (cluster, test) => {
        test.timeout(90_000)
        const [one, two, three] = cluster.nodes as [Node, Node, Node]
        for (const other of [two, three]) await other.agent().ready(30_000)
        const to = subnetOf(two)
        await one.ns.ip('route', 'add', to, 'dev', 'eth0')
        const agent = one.agent()
        const { state } = await agent.ready(30_000)
        assert.equal(state, 'degraded')
        assert.ok(existsSync(join(one.dir, 'net.d/10-flannel.conflist')))
        await until(() => ping(one.ns, subnetOf(three).replace(/\/.*/, '')), 15_000)
        const reason = new RegExp(
          `^200 degraded: Cannot reach ${to} of node "n2": Cannot make route ${to}: another program has a route there \\(see: ip route show ${to}\\)$`,
          'm',
        )
        assert.match(await agent.readyz(), reason)
        const told = await agent.status()
        assert.match(
          told?.peers.find(({ node }) => node === 'n2')?.problem ?? '',
          /^Cannot make route .* another program has a route there/,
        )
        assert.equal(told?.peers.find(({ node }) => node === 'n3')?.problem, undefined)
        const status = await one.ns.exec([PLUMB, 'status', '--socket', join(one.dir, 'agent.sock')])
        assert.equal(status.status, 3, status.stderr)
        assert.match(status.stdout, /^n1 is degraded:\n {2}Cannot reach /)
        assert.match(
          (await one.ns.exec([PLUMB, 'leases', '--socket', join(one.dir, 'agent.sock')])).stdout,
          /n2 .* unreachable: Cannot make route/,
        )
        await one.ns.ip('route', 'del', to, 'dev', 'eth0')
        await until(async () => (await agent.readyz()) === '200 ready\n', 10_000)
        await until(() => ping(one.ns, to.replace(/\/.*/, '')))
        assert.equal(agent.log().match(/Cannot reach /g)?.length, 1, agent.log())
      },
    ),
  )

  it(
    'among 700 leases one that cannot be programmed holds back none of the others',
    inCluster(
      1,
      (cluster) => [...fileStore(cluster, { ...VXLAN, Network: '10.240.0.0/12' }), '--allow-overlap'],
      async (cluster, test) => {
        test.timeout(90_000)
        const [one] = cluster.nodes as [Node]
        peersInStore(cluster, 700)
        await one.ns.ip('route', 'add', '10.241.5.0/24', 'dev', 'eth0')
        const agent = one.agent()
        await agent.ready(60_000)
        await until(async () => (await agent.status())?.kinds['route']?.wanted === 700, 20_000)
        const { kinds, state, peers } = (await agent.status()) ?? {}
        assert.deepEqual(
          [
            kinds?.['route']?.programmed,
            kinds?.['neigh']?.programmed,
            state,
            peers?.filter(({ problem }) => problem !== undefined).length,
          ],
          [699, 700, 'degraded', 1],
        )
        // What goes on failing is tried less and less often.
        const steps = async () => (await agent.status())?.steps.count ?? 0
        await until(async () => {
          const before = await steps()
          await Bun.sleep(4000)
          return (await steps()) <= before + 1
        }, 40_000)
      },
    ),
  )

  it(
    'one fought-over route does not delay the repair of others',
    inCluster(
      3,
      (cluster) => fileStore(cluster, VXLAN),
      async ({ nodes }, test) => {
        test.timeout(90_000)
        const [one, two, three] = nodes as [Node, Node, Node]
        const [agent] = [one.agent(), two.agent(), three.agent()]
        await agent.ready(30_000)
        await until(async () => (await agent.status())?.kinds['route']?.programmed === 2, 10_000)
        const [fought, other] = [subnetOf(two), subnetOf(three)]
        const fight = Bun.spawn(
          [
            'nsenter',
            `--net=${one.ns.path}`,
            '--',
            'sh',
            '-c',
            `while :; do ip route del ${fought} proto 112; sleep 0.02; done`,
          ],
          { stdio: ['ignore', 'ignore', 'ignore'] },
        )
        try {
          await until(async () => pauseOf(await agent.status()) >= 3, 40_000)
          const { kinds } = (await agent.status()) ?? {}
          for (let i = 0; i < 3; i++) {
            await one.ns.ip('route', 'del', other, 'proto', '112')
            await until(async () => (await one.ns.ip('route', 'show', other, 'proto', '112')) !== '', 1500)
          }
          await until(
            async () =>
              ((await agent.status())?.kinds['route']?.repaired ?? 0) >= (kinds?.['route']?.repaired ?? 0) + 3,
            5000,
          )
          assert.match(await agent.readyz(), /^200 degraded: route .* is changed by another program again and again/)
        } finally {
          fight.kill('SIGKILL')
          await fight.exited
        }
        await until(async () => (await one.ns.ip('route', 'show', fought, 'proto', '112')) !== '', 40_000)
        await until(async () => (await agent.status())?.state === 'ready', 60_000)
      },
    ),
  )

  it(
    'an agent whose status port is taken serves its pods, degraded; it takes the port when it is free',
    inCluster(
      1,
      (cluster) => fileStore(cluster, VXLAN),
      async ({ nodes }, test) => {
        test.timeout(60_000)
        const [one] = nodes as [Node]
        const other = Bun.spawn(
          [
            'nsenter',
            `--net=${one.ns.path}`,
            '--',
            process.execPath,
            '-e',
            "Bun.listen({ hostname: '127.0.0.1', port: 9469, socket: { data() {} } }); console.log('up')",
          ],
          { stdout: 'pipe' },
        )
        await other.stdout.getReader().read()
        const agent = one.agent()
        await agent.ready(20_000)
        assert.equal(
          await agent.readyz(),
          '200 degraded: Cannot listen on 127.0.0.1 port 9469: another program listens there\n',
        )
        other.kill('SIGKILL')
        await other.exited
        await until(async () => (await agent.readyz()) === '200 ready\n', 20_000)
      },
    ),
  )

  it(
    'a monitor that cannot run is in /readyz, until it can',
    inCluster(
      1,
      (cluster) => fileStore(cluster, VXLAN),
      async ({ nodes }, test) => {
        test.timeout(90_000)
        const [one] = nodes as [Node]
        const shim = shimmed('plumb', {
          ip: `if [ -e "$dir/fault" ]; then case "$*" in *monitor*) echo "no monitor today" >&2; exit 1;; esac; fi\n${PASS}`,
        })
        writeFileSync(join(shim.dir, 'fault'), '')
        const agent = one.agentAs(shim.file)
        await until(
          async () =>
            /^503 .*ip -rcvbuf .* cannot run, so that changes go unnoticed: no monitor today/s.test(
              await agent.readyz(),
            ),
          30_000,
        )
        rmSync(join(shim.dir, 'fault'))
        await until(async () => (await agent.readyz()) === '200 ready\n', 30_000)
      },
    ),
  )

  it(
    'subnet.env that somebody removes, or changes, is there again within a second or so, its folder too',
    inCluster(
      1,
      (cluster) => fileStore(cluster, VXLAN),
      async (cluster, test) => {
        test.timeout(60_000)
        const [one] = cluster.nodes as [Node]
        const folder = join(one.dir, 'run')
        mkdirSync(folder)
        const path = join(folder, 'subnet.env')
        const agent = one.agent('--subnet-file', path)
        await agent.ready(20_000)
        const text = readFileSync(path, 'utf8')
        const isBack = () => existsSync(path) && readFileSync(path, 'utf8') === text
        for (const harm of [
          () => rmSync(path),
          () => writeFileSync(path, 'FLANNEL_MTU=1\n'),
          () => rmSync(folder, { recursive: true }),
          () => rmSync(path),
        ]) {
          harm()
          await until(isBack, 4000)
        }
        assert.match(agent.log(), /repaired changes of another program: .*run\/subnet\.env/)
        const status = await agent.status()
        assert.equal(status?.state, 'ready')
        assert.ok((status?.kinds['file']?.repaired ?? 0) > 0, 'plumb_repairs_total has no series for files')
      },
    ),
  )
})

/** Leases of as many nodes that are not there, in the cluster's folder. */
function peersInStore({ dir }: Cluster, count: number): void {
  const subnets = join(dir, 'store/subnets')
  mkdirSync(subnets, { recursive: true })
  const hex = (n: number) => n.toString(16).padStart(2, '0')
  for (let i = 1; i <= count; i++) {
    const [high, low] = [i >> 8, i & 255]
    writeFileSync(
      join(subnets, `10.${240 + high}.${low}.0-24`),
      JSON.stringify({
        PublicIP: `172.31.${high}.${low}`,
        PublicIPv6: null,
        BackendType: 'vxlan',
        BackendData: { VNI: 1, VtepMAC: `02:00:00:01:${hex(high)}:${hex(low)}` },
      }),
    )
  }
}

function subnetOf(node: Node): string {
  return (subnetEnv(node)?.['FLANNEL_SUBNET'] ?? '').replace(/\.1\/24$/, '.0/24')
}

function pauseOf(status: Awaited<ReturnType<Agent['status']>>): number {
  return Math.max(
    0,
    ...(status?.degraded ?? []).map((reason) => Number(/put right every ([\d.]+) s/.exec(reason)?.[1] ?? 0)),
  )
}
