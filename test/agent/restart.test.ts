// lane: netns
// Tests agent: one or several agents on nodes of their own.
import assert from 'node:assert/strict'
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { overlaid, partsOf, ruleset } from '../../agent/firewall/masquerade.ts'
import type { Cidr } from '../../lib/text/ip.ts'
import { podOn } from '../support/flows.ts'
import { inNamespaces, type Namespace, until } from '../support/harness.ts'
import { type Agent, fileStore, inCluster, type Node } from '../support/nodes.ts'
import { WORLD, wireWorld } from '../support/packets.ts'
import { random } from '../support/seed.ts'

const CONF = { Network: '10.244.0.0/16', Backend: { Type: 'vxlan' } }
/** Settings that make other rules. */
const OTHERS = [['--non-masquerade-cidrs=203.0.113.0/24'], ['--ip-masq-fully-random-disable'], []]

describe('masquerading', () => {
  it(
    'no packet leaves with a pod’s address while the agent ends by SIGTERM or SIGKILL, starts, and starts with other rules, ten thousand new flows a second',
    inScene(async ({ node, first, pod, world }) => {
      const flood = await flooded(pod, world)
      await first.stop()
      for (let i = 0; i < 12; i++) {
        const agent = node.agent(...(OTHERS[i % 3] as string[]))
        await until(() => agent.log().includes('agent: this node has'), 30_000)
        // Every second one is killed about when it loads its rules.
        if (i % 2 === 0) await agent.ready(20_000)
        else await Bun.sleep(random() * 60)
        await agent.stop(i % 2 === 0 && i % 4 === 0 ? 'SIGTERM' : 'SIGKILL')
      }
      await flood.end()
    }),
  )

  it(
    'no packet leaves with a pod’s address while the table takes the place of itself two hundred times',
    inScene(async ({ node, first, pod, world }) => {
      await first.stop()
      const table = /table inet (plumb_agent\w*)/.exec(
        (await node.ns.exec(['nft', 'list', 'tables'])).stdout,
      )?.[1] as string
      const flood = await flooded(pod, world)
      const text = (i: number) =>
        overlaid(table, {
          networks: ['10.244.0.0/16' as Cidr],
          own: [],
          masquerade: true,
          keep: i % 2 ? ['203.0.113.0/24' as Cidr] : [],
          random: i % 3 === 0,
        })
      for (let i = 0; i < 200; i++) assert.equal((await node.ns.exec(['nft', '-f', '-'], { stdin: text(i) })).status, 0)
      await flood.end()
    }),
  )
})

describe('overlaid()', () => {
  it(
    'over any earlier table of ours it makes what ruleset() makes, and partsOf() names what is in it',
    inNamespaces(['node'], async ({ node }) => {
      const shapes = [['10.244.0.0/16'], ['fd00:244::/48'], ['10.244.0.0/16', 'fd00:244::/48']].flatMap((networks) =>
        [true, false].map((masquerade) => ({
          networks: networks as Cidr[],
          own: [networks[0] as Cidr],
          masquerade,
          keep: [networks[0]?.includes(':') ? '2001:db8::/32' : '192.0.2.0/24'] as Cidr[],
          random: masquerade,
        })),
      )
      const load = async (text: string) => {
        const { status, stderr } = await node.exec(['nft', '-f', '-'], { stdin: text })
        assert.equal(status, 0, stderr)
        return (await node.exec(['nft', 'list', 'ruleset'])).stdout
      }
      for (const shape of shapes) {
        const wanted = await load(ruleset('t', shape))
        assert.deepEqual(
          [...wanted.matchAll(/(set|chain) \w+/g)].map(([part]) => part).sort(),
          [...partsOf(shape)].sort(),
        )
        for (const earlier of shapes) {
          await load(ruleset('t', earlier))
          // In the order of their making, which is no matter.
          const sorted = (text: string) =>
            text
              .replace(/}\s*$/, '')
              .split(/\n(?=\t\w)/)
              .map((part) => part.trim())
              .sort()
          assert.deepEqual(sorted(await load(overlaid('t', shape))), sorted(wanted))
        }
      }
    }),
  )
})

describe('plumb agent, after a SIGKILL', () => {
  it(
    'ends the monitors that nobody reads any more, and leaves those of another agent',
    inCluster(
      2,
      (cluster) => fileStore(cluster, CONF),
      async ({ nodes }) => {
        const [one, two] = nodes as [Node, Node]
        const [first, other] = [one.agent(), two.agent()]
        for (const agent of [first, other]) await agent.ready(30_000)
        const [orphaned, others] = [await monitorsOf(first), await monitorsOf(other)]
        await first.stop('SIGKILL')
        const again = one.agent()
        await again.ready(30_000)
        await monitorsOf(again)
        assert.deepEqual(
          orphaned.filter((pid) => monitors().includes(pid)),
          [],
        )
        assert.deepEqual(await monitorsOf(other), others)
      },
    ),
  )
})

function monitors(): string[] {
  return readdirSync('/proc').filter(
    (pid) => /^\d+$/.test(pid) && read(`/proc/${pid}/environ`).includes('PLUMB_MONITOR_OF='),
  )
}

// One for each tool.
async function monitorsOf({ pid }: Agent): Promise<string[]> {
  const own = () => monitors().filter((one) => new RegExp(`^PPid:\\t${pid}$`, 'm').test(read(`/proc/${one}/status`)))
  await until(() => own().length === 2)
  return own()
}

function read(path: string): string {
  try {
    return readFileSync(path, 'utf8')
  } catch {
    return ''
  }
}

interface Scene {
  readonly node: Node
  readonly first: Agent
  readonly pod: Namespace
  readonly world: Namespace
}

function inScene(work: (scene: Scene) => Promise<void>) {
  return inCluster(
    1,
    (cluster) => fileStore(cluster, CONF),
    async ({ nodes }, test) => {
      test.timeout(60_000)
      const [node] = nodes as [Node]
      const first = node.agent()
      await first.ready(30_000)
      await inNamespaces(['pod', 'world'], async ({ pod, world }) => {
        const address = await podOn(node, pod)
        await wireWorld(node.ns, world, `${address}/32`)
        // So many flows, each of one packet, fill no table.
        for (const name of ['udp_timeout', 'udp_timeout_stream'])
          if (existsSync(`/proc/sys/net/netfilter/nf_conntrack_${name}`))
            await node.ns.exec(['sh', '-c', `echo 1 >/proc/sys/net/netfilter/nf_conntrack_${name}`])
        await work({ node, first, pod, world })
      }).call(test)
    },
  )
}

/** Sends packets to ever other ports from a pod, each a flow of its own, and counts what arrives by its source. */
async function flooded(pod: Namespace, world: Namespace): Promise<{ end(): Promise<void> }> {
  const rules =
    'table inet seen { chain in { type filter hook prerouting priority -300; ip saddr 10.244.0.0/16 counter drop; udp dport 1-65535 counter drop; }; }'
  assert.equal((await world.exec(['nft', '-f', '-'], { stdin: rules })).status, 0)
  const sender = Bun.spawn(['nsenter', `--net=${pod.path}`, '--', process.execPath, '-e', SENDER, WORLD.world4], {
    stdin: 'pipe',
    stdout: 'ignore',
    stderr: 'inherit',
  })
  const counts = async () =>
    [...(await world.exec(['nft', 'list', 'table', 'inet', 'seen'])).stdout.matchAll(/counter packets (\d+)/g)].map(
      ([, n]) => Number(n),
    )
  await until(async () => ((await counts())[1] ?? 0) > 100)
  return {
    async end() {
      sender.stdin.end()
      await sender.exited
      const [bare, all = 0] = await counts()
      assert.equal(bare, 0, `${bare} packets with the pod's own address, beside ${all} others`)
      assert.ok(all > 10_000, `${all}`)
    },
  }
}

const SENDER = `
process.stdin.on('end', () => process.exit(0)); process.stdin.resume()
const [address] = process.argv.slice(-1)
const socket = await Bun.udpSocket({ socket: {} })
let port = 1
setInterval(() => { for (let i = 0; i < 20; i++) { try { socket.send('x', port, address) } catch {} port = port % 65535 + 1 } }, 1)`
