// lane: netns
// Tests agent/policy/guard.ts: a pod that forges another pod's address is dropped, on a bridge and on a link of its
// own.
import assert from 'node:assert/strict'
import { join } from 'node:path'
import { jointly } from '../../../agent/kernel/jointly.ts'
import { GUARD, Guard } from '../../../agent/policy/guard.ts'
import type { PodPlace } from '../../../agent/policy/places.ts'
import { inside } from '../../../lib/os/netns.ts'
import type { Run } from '../../../lib/os/run.ts'
import { parseIp } from '../../../lib/text/ip.ts'
import type { IfName } from '../../../lib/text/values.ts'
import { inNamespaces, type Namespace, type Row } from '../../support/harness.ts'
import { type RawFrame, UNDECIDED } from '../../support/raw-frames.ts'

const FRAMES = join(import.meta.dir, '../../support/raw-frames.ts')
const ONE_TAG: readonly string[] = ['priority tag', '802.1ad tag', 'tag of VLAN 7']
const PODS = ['a', 'b'] as const
const place = (name: string, last: number): Omit<PodPlace, 'isPort'> => ({
  addresses: [parseIp(`10.1.0.${last}`), parseIp(`fd01::${last}`)],
  link: `v${name}` as IfName,
  isIsolated: false,
  isConfined: false,
})
const PLACES = [place('a', 10), place('b', 11)]

async function pods(
  node: Namespace,
  spaces: Readonly<Record<'a' | 'b', Namespace>>,
  isBridged: boolean,
): Promise<void> {
  const nodad = 'echo 0 >/proc/sys/net/ipv6/conf/default/accept_dad'
  const lines = [
    'sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1 net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.default.rp_filter=0',
    nodad,
  ]
  if (isBridged)
    lines.push(
      'ip link add br0 type bridge',
      'ip addr add 10.1.0.1/24 dev br0',
      'ip addr add fd01::1/64 dev br0 nodad',
      'ip link set br0 up',
    )
  for (const [i, name] of PODS.entries()) {
    lines.push(
      `ip link add v${name} ${isBridged ? 'master br0' : ''} up type veth peer name eth0 netns ${spaces[name].path}`,
    )
    if (!isBridged)
      lines.push(
        `ip addr add 10.1.0.1/32 dev v${name}`,
        `ip addr add fd01::1/128 dev v${name} nodad`,
        `ip route add 10.1.0.${10 + i}/32 dev v${name}`,
        `ip -6 route add fd01::${10 + i}/128 dev v${name}`,
      )
  }
  const made = await node.exec(['sh', '-ec', lines.join('\n')])
  assert.equal(made.status, 0, made.stderr)
  for (const [i, name] of PODS.entries()) {
    const { exec } = spaces[name]
    const width = isBridged ? [24, 64] : [32, 128]
    const inside = [
      nodad,
      'ip link set lo up',
      'ip link set eth0 up',
      `ip addr add 10.1.0.${10 + i}/${width[0]} dev eth0`,
      `ip addr add fd01::${10 + i}/${width[1]} dev eth0 nodad`,
    ]
    // The forged addresses, as an attacker with NET_ADMIN would add them.
    inside.push(`ip addr add 10.1.0.99/32 dev eth0`, `ip addr add fd01::99/128 dev eth0 nodad`)
    if (!isBridged) inside.push('ip route add 10.1.0.1 dev eth0 scope link', 'ip -6 route add fd01::1 dev eth0')
    inside.push('ip route add default via 10.1.0.1', 'ip -6 route add default via fd01::1')
    const done = await exec(['sh', '-ec', inside.join('\n')])
    assert.equal(done.status, 0, done.stderr)
  }
}

const pings = async (from: Namespace, source: string, to: string) =>
  (await from.exec(['ping', '-n', '-q', '-c', '2', '-i', '0.2', '-W', '1', '-I', source, to])).status === 0

describe('the guard of pods’ addresses', () => {
  for (const isBridged of [true, false])
    it(
      `${isBridged ? 'on a bridge' : 'on links of their own'}: packets from its own addresses alone pass, in both families`,
      inNamespaces(['node', 'a', 'b'], async ({ node, a, b }, test) => {
        test.timeout(60_000)
        await pods(node, { a, b }, isBridged)
        const family = isBridged ? 'bridge' : 'inet'
        // What a forged packet meets on its way out of the pod counts, not whether an answer finds back.
        const dropped = async () => {
          const { stdout } = await node.exec(['nft', 'list', 'chain', family, GUARD, 'prerouting'])
          return [...stdout.matchAll(/counter packets (\d+)/g)].reduce((sum, [, count]) => sum + Number(count), 0)
        }
        const guard = new Guard()
        const run: Run = async (argv, stdin) => node.exec([...argv], { stdin })
        const update = async (pods: readonly Omit<PodPlace, 'isPort'>[]) =>
          (
            await jointly(
              run,
              guard.works({
                pods: pods.map((one) => ({ ...one, isPort: isBridged })),
                strangers: [],
                hasBridge: isBridged,
              }),
            )
          ).flat()
        await update(PLACES)
        for (const [source, to] of [
          ['10.1.0.10', '10.1.0.11'],
          ['fd01::10', 'fd01::11'],
        ] as const)
          assert.ok(await pings(a, source, to), `${source} to ${to}`)
        assert.equal(await dropped(), 0)
        let seen = 0
        for (const [source, to] of [
          ['10.1.0.99', '10.1.0.11'],
          ['fd01::99', 'fd01::11'],
          ['10.1.0.99', '10.1.0.1'],
        ] as const) {
          assert.equal(await pings(a, source, to), false, `${source} to ${to}`)
          const now = await dropped()
          assert.ok(now > seen, `${source} to ${to}: ${now} packets dropped`)
          seen = now
        }
        // A pod that is gone is no longer guarded, and its link's name may be another's.
        await update(PLACES.slice(1))
        assert.doesNotMatch((await node.exec(['nft', 'list', 'table', family, GUARD])).stdout, /"va"/)
        assert.ok(await pings(b, '10.1.0.11', '10.1.0.10'))
      }),
    )

  it(
    'a bridge that is deleted under its pods and made again finds them guarded, also when the agent starts in between',
    inNamespaces(['node', 'a', 'b'], async ({ node, a, b }) => {
      await pods(node, { a, b }, true)
      const run: Run = async (argv, stdin) => node.exec([...argv], { stdin })
      const update = (guard: Guard, isBridged: boolean) =>
        inside(node.path as never, () =>
          guard.works({
            pods: PLACES.map((one) => ({ ...one, isPort: isBridged })),
            strangers: [],
            hasBridge: isBridged,
          }),
        )
      const dropped = async () => {
        const { stdout } = await node.exec(['nft', 'list', 'chain', 'bridge', GUARD, 'prerouting'])
        return [...stdout.matchAll(/counter packets (\d+)/g)].reduce((sum, [, count]) => sum + Number(count), 0)
      }
      const guard = new Guard()
      await jointly(run, update(guard, true))
      for (const later of [guard, new Guard()]) {
        await shell(node, 'ip link delete br0')
        await jointly(run, update(later, false))
        // As an ADD does. Nobody tells the guard.
        await shell(
          node,
          'ip link add br0 type bridge; ip addr add 10.1.0.1/24 dev br0; ip addr add fd01::1/64 dev br0 nodad; ip link set br0 up; ip link set va master br0; ip link set vb master br0',
        )
        assert.ok(await pings(a, '10.1.0.10', '10.1.0.11'))
        assert.ok(await pings(a, 'fd01::10', 'fd01::11'))
        let seen = await dropped()
        for (const [source, to] of [
          ['10.1.0.99', '10.1.0.11'],
          ['fd01::99', 'fd01::11'],
        ] as const) {
          assert.equal(await pings(a, source, to), false, `${source} to ${to}`)
          const now = await dropped()
          assert.ok(now > seen, `${source} to ${to}: ${now} packets dropped`)
          seen = now
        }
      }
    }),
  )

  it(
    'a pod of a bridge gets no packet for another pod: not by its MAC, not by neighbour advertisements, and not as a router',
    inNamespaces(['node', 'a', 'b', 'c'], async ({ node, a, b, c }, test) => {
      test.timeout(60_000)
      await pods(node, { a, b }, true)
      await shell(
        node,
        `ip link add vc master br0 up type veth peer name eth0 netns ${c.path}; sysctl -qw net.ipv6.conf.br0.accept_ra=2`,
      )
      await shell(
        c,
        'ip link set lo up; ip addr add 10.1.0.12/24 dev eth0; ip addr add fd01::12/64 dev eth0 nodad; ip link set eth0 up; ip -6 route add default via fd01::1',
      )
      const run: Run = async (argv, stdin) => node.exec([...argv], { stdin })
      const places = [...PLACES, place('c', 12)].map((one) => ({ ...one, isPort: true }))
      await jointly(run, new Guard().works({ pods: places, strangers: [], hasBridge: true }))
      const seen = `table netdev seen {
        chain eth0 { type filter hook ingress device eth0 priority 0;
          ip daddr 10.1.0.11 counter
          ip6 daddr fd01::11 counter
        }
      }`
      assert.equal((await a.exec(['nft', '-f', '-'], { stdin: seen })).status, 0)
      const came = async () =>
        [...(await a.exec(['nft', 'list', 'table', 'netdev', 'seen'])).stdout.matchAll(/packets (\d+)/g)].map(
          ([, count]) => Number(count),
        )
      const rows = async ({ json }: Namespace) => (await json('addr', 'show', 'dev', 'eth0'))[0]
      const [ofA, ofB] = [await rows(a), await rows(b)]
      const local = ofA?.['addr_info'].find(({ scope }: Row) => scope === 'link').local
      for (const to of ['10.1.0.11', 'fd01::11', 'fd01::1']) assert.ok(await pings(c, 'eth0', to), to)
      const neighbours = async () =>
        (await c.json('-6', 'neigh', 'show', 'dev', 'eth0'))
          .filter(({ lladdr, dst }) => lladdr === ofA?.['address'] && dst !== 'fd01::10' && dst !== local)
          .map(({ dst }) => dst)
      const send = async (frame: Omit<RawFrame, 'mac' | 'ip'>) => {
        const all = { ...frame, mac: '33:33:00:00:00:01', ip: 'ff02::1' }
        const sent = await a.exec([process.execPath, FRAMES, JSON.stringify(all)])
        assert.equal(sent.status, 0, sent.stderr)
      }
      for (const text of ['fd01::11', 'fd01::1'])
        for (const source of ['fd01::10', local]) {
          await send({ kind: 'neighbour advertisement', text, source })
          assert.deepEqual(await neighbours(), [], `${text} from ${source}`)
        }
      await send({ kind: 'router advertisement', text: '', source: local })
      // Its own address, and one of the link, are its to announce.
      await send({ kind: 'neighbour advertisement', text: 'fd01::10', source: 'fd01::10' })
      await send({ kind: 'neighbour advertisement', text: local, source: local })
      for (const one of [b, c, node]) {
        const { stdout } = await one.exec(['ip', '-6', 'route', 'show', 'proto', 'ra'])
        assert.equal(stdout, '')
      }
      await shell(a, `ip link set eth0 address ${ofB?.['address']}`)
      await pings(a, '10.1.0.10', '10.1.0.1')
      for (const to of ['10.1.0.11', 'fd01::11']) await pings(c, 'eth0', to)
      assert.deepEqual(await came(), [0, 0])
    }),
  )

  it(
    'frames with a tag or of another protocol than IP reach no isolated pod, and leave none whose egress is restricted',
    inNamespaces(['node', 'a', 'b'], async ({ node, a, b }, test) => {
      test.timeout(120_000)
      await pods(node, { a, b }, true)
      // What comes to the pod's link counts, whatever its kernel makes of it. Nobody else sends frames of this length.
      const seen = `table netdev seen {
        chain eth0 { type filter hook ingress device eth0 priority 0; meta length > 500 counter; }
      }`
      assert.equal((await b.exec(['nft', '-f', '-'], { stdin: seen })).status, 0)
      const came = async () => {
        const { stdout } = await b.exec(['nft', 'list', 'table', 'netdev', 'seen'])
        return Number(/counter packets (\d+)/.exec(stdout)?.[1])
      }
      const mac = (await b.json('link', 'show', 'dev', 'eth0'))[0]?.['address']
      const guard = new Guard()
      const run: Run = async (argv, stdin) => node.exec([...argv], { stdin })
      const arrives = async (kind: string, ip: string) => {
        const before = await came()
        const source = ip.includes(':') ? 'fd01::10' : '10.1.0.10'
        const frame = JSON.stringify({ kind, text: 'raw'.repeat(200), mac, source, ip })
        const sent = await a.exec([process.execPath, FRAMES, frame])
        assert.equal(sent.status, 0, sent.stderr)
        return (await came()) > before
      }
      const [of, to] = PLACES as [Omit<PodPlace, 'isPort'>, Omit<PodPlace, 'isPort'>]
      const ways: readonly (readonly [string, boolean, readonly Omit<PodPlace, 'isPort'>[]])[] = [
        ['no policy', true, [of, to]],
        ['ingress policy of the receiver', false, [of, { ...to, isIsolated: true }]],
        ['the same, from a port that the guard does not know', false, [{ ...to, isIsolated: true }]],
        ['egress policy of the sender', false, [{ ...of, isConfined: true }, to]],
      ]
      for (const [what, isOpen, places] of ways) {
        const all = places.map((one) => ({ ...one, isPort: true }))
        await jointly(run, guard.works({ pods: all, strangers: [], hasBridge: true }))
        for (const ip of ['10.1.0.11', 'fd01::11']) {
          for (const kind of UNDECIDED) {
            // A pod sends IP alone. One tag hides no packet from this rule, so that trunks of pods without policies work.
            const passes = isOpen && ONE_TAG.includes(kind)
            assert.equal(await arrives(kind, ip), passes, `${what}: ${kind} to ${ip}`)
          }
          assert.ok(await arrives('plain', ip), `${what}: a plain frame to ${ip}`)
        }
      }
    }),
  )
})

async function shell({ exec }: Namespace, text: string): Promise<void> {
  const { status, stderr } = await exec(['sh', '-ec', text])
  assert.equal(status, 0, stderr)
}
