// lane: long
// Tests agent/backend/path-mtu.ts: real agents, a link of smaller MTU between their nodes, and streams between pods.
import assert from 'node:assert/strict'
import { join } from 'node:path'
import type { Peer } from '../../../agent/state/status.ts'
import { becomePod } from '../../support/etcd-networks.ts'
import { exposition, value } from '../../support/exposition.ts'
import { type Namespace, until } from '../../support/harness.ts'
import { setFeature } from '../../support/link-features.ts'
import { type Agent, fileStore, inCluster, type Node } from '../../support/nodes.ts'

const NETWORK = { Network: '10.244.0.0/16', EnableIPv6: true, IPv6Network: 'fd00:244::/48' }
const PLUMB = join(import.meta.dir, '../../../dist/plumb')
const BYTES = 300_000
/** How long a stream may stand still. A pod that is told the size sends again after 0.2 s. */
const QUIET_MS = 4000

async function peerOf(agent: Agent): Promise<Peer | undefined> {
  return (await agent.status())?.peers[0]
}

// The bytes that a pod gets from another one before nothing more comes.
async function streamed(from: Namespace, to: Namespace, address: string): Promise<number> {
  const host = address.includes(':') ? `[${address}]` : address
  const server = Bun.spawn(
    [
      'nsenter',
      `--net=${from.path}`,
      '--',
      process.execPath,
      '-e',
      `Bun.serve({ hostname: '${address}', port: 8080, fetch: () => new Response(Buffer.alloc(${BYTES}, 'plumb ')) }); console.log('listens')`,
    ],
    { stdin: 'ignore', stdout: 'pipe', stderr: 'inherit' },
  )
  try {
    await server.stdout.getReader().read()
    const client = `let [got, quiet] = [0]; const end = () => { console.log(got); process.exit(0) }; const wait = () => { clearTimeout(quiet); quiet = setTimeout(end, ${QUIET_MS}) }; wait(); for await (const piece of (await fetch('http://${host}:8080/')).body) { got += piece.length; wait(); if (got === ${BYTES}) end() }`
    const { stdout, stderr } = await to.exec([process.execPath, '-e', client])
    assert.match(stdout, /^\d+\n$/, stderr)
    return Number(stdout)
  } finally {
    server.kill('SIGKILL')
    await server.exited
  }
}

describe('plumb agent and a path that takes smaller packets than pods may send', () => {
  for (const { Type, sizes } of [
    // A bridge lets 4 bytes more than the MTU pass, for the tag of a VLAN. VXLAN takes 50 bytes, over IPv6 70.
    { Type: 'vxlan', sizes: { v4: 1354, v6: 1334 } },
    { Type: 'host-gw', sizes: { v4: 1404, v6: 1404 } },
  ])
    it(
      `${Type}: a stream between pods hangs without probes; with them the routes get the size that arrives, it passes, and the agent says so and keeps it; the path is whole again, and so are the routes`,
      inCluster(
        4,
        (cluster) => fileStore(cluster, { ...NETWORK, Backend: { Type } }),
        async ({ hub, nodes }, test) => {
          test.timeout(300_000)
          const [one, two, ...pods] = nodes as [Node, Node, Node, Node]
          // A bridge with netfilter would cut the tunnel's packets.
          await hub.exec(['sh', '-c', 'for one in /proc/sys/net/bridge/bridge-nf-call-ip*; do echo 0 >$one; done'])
          // A link between namespaces carries packets that are not cut yet, whatever its MTU is.
          for (const { ns } of [one, two])
            for (const feature of ['tx-udp_tnl-segmentation', 'tx-udp_tnl-csum-segmentation', 'tx-tcp-segmentation'])
              setFeature(ns, 'eth0', feature, false)
          const starts = (seconds: number) => [one, two].map((node) => node.agent(`--probe-interval=${seconds}`))
          let agents = starts(0)
          for (const agent of agents) await agent.ready(30_000)
          const mtu = (await agents[0]?.status())?.mtu as number
          const [near, far] = [await becomePod(pods[0], one), await becomePod(pods[1], two)]
          for (const { ns } of pods) {
            await ns.ip('link', 'set', 'eth0', 'mtu', `${mtu}`)
            // Pods do not cut for others either.
            setFeature(ns, 'eth0', 'tx-tcp-segmentation', false)
            setFeature(ns, 'eth0', 'tx-tcp6-segmentation', false)
          }
          const families = ['v4', 'v6'] as const
          const stream = () =>
            Promise.all(
              families.flatMap((family) => [
                streamed(pods[0].ns, pods[1].ns, near[family] as string),
                streamed(pods[1].ns, pods[0].ns, far[family] as string),
              ]),
            )
          assert.deepEqual(await stream(), [BYTES, BYTES, BYTES, BYTES])
          await hub.ip('link', 'set', 'port2', 'mtu', '1400')
          assert.deepEqual(
            (await stream()).filter((got) => got === BYTES),
            [],
          )

          for (const agent of agents) await agent.stop()
          agents = starts(1)
          const [agent] = agents as [Agent, Agent]
          const has = (expected: Peer['routeMtu'], ms: number) =>
            until(async () => {
              for (const each of agents) assert.deepEqual((await peerOf(each))?.routeMtu, expected)
              return true
            }, ms)
          await has(sizes, 120_000)
          assert.deepEqual(await stream(), [BYTES, BYTES, BYTES, BYTES])

          const subnet = (await peerOf(agent))?.subnets.v4 as string
          const route = () => one.ns.ip('route', 'show', subnet)
          const kept = await route()
          assert.match(kept, new RegExp(` mtu ${sizes.v4} *$`))
          // Somebody takes it away.
          await one.ns.ip(
            'route',
            'replace',
            ...kept
              .replace(/ mtu \d+/, '')
              .trim()
              .split(/\s+/),
          )
          await until(async () => (await route()) === kept, 5000)
          const said = `answers, but packets of full size do not reach it; its route has mtu ${sizes.v4}, ${sizes.v6}`
          assert.ok((await plumb(one, 'leases')).includes(said))
          assert.match(await plumb(one, 'doctor', 'DR57'), /^warning DR57: Packets over \d+ bytes to n2 vanish; /m)
          assert.match(await plumb(one, 'doctor', 'DR19'), /^Nothing is wrong/m)
          assert.match((await agent.status())?.degraded.join() ?? '', /the routes to 1 of them tell pods the size/)
          const metrics = await (await fetch('http://plumb/metrics', { unix: join(one.dir, 'agent.sock') })).text()
          const smallest = Math.min(sizes.v4, sizes.v6)
          assert.equal(value(exposition(metrics), 'plumb_peer_route_mtu_bytes', { node: 'n2' }), smallest)

          await hub.ip('link', 'set', 'port2', 'mtu', '1500')
          await has(undefined, 60_000)
          await until(async () => !/ mtu /.test(await route()), 5000)
          assert.deepEqual(await stream(), [BYTES, BYTES, BYTES, BYTES])
          await until(async () => (await agent.readyz()) === '200 ready\n', 30_000)
          assert.match(agent.log(), /packets of full size arrive again at /)
        },
      ),
    )
})

async function plumb({ ns, dir }: Node, command: string, ...more: readonly string[]): Promise<string> {
  const socket = ['--socket', join(dir, 'agent.sock')]
  return (await ns.exec([PLUMB, command, ...socket, ...more])).stdout
}
