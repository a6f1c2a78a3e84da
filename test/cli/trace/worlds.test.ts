// lane: longer
// Tests cli/trace: the oracle against packets, over generated nodes.
import assert from 'node:assert/strict'
import { inNamespaces, type Namespace } from '../../support/harness.ts'
import { generator } from '../../support/random.ts'
import { nodeWithPods, sh, traced } from '../../support/traces.ts'

type Spaces = Record<'node' | 'a' | 'b' | 'outside', Namespace>
/** The worlds of a node, and the nodes that are tried at once. */
const [WORLDS, LANES] = [50, 4] as const
/** The addresses of the node of a lane, as `nodeWithPods` gives them. */
const addressesOf = (n: number) => ({
  4: { a: `10.${n}.0.2`, b: `10.${n}.0.3`, node: `10.${n}.0.1`, outside: `192.0.${n + 1}.9`, nowhere: '203.0.113.1' },
  6: {
    a: `fd0${n}::2`,
    b: `fd0${n}::3`,
    node: `fd0${n}::1`,
    outside: `2001:db8:${8 + n}::9`,
    nowhere: '2001:db8:7::1',
  },
})
const MAC = '02:00:00:00:00:01'
const LISTENER =
  "require('node:net').createServer((s) => s.on('error', () => {})).listen(80, '::', () => { const u = require('node:dgram').createSocket('udp6'); u.bind(53, '::', () => console.log('ready')) })"

/** Choices that are the same in each run. */
function random(seed: number) {
  const next = generator(seed)
  return {
    chance: (share: number) => next() < share,
    one: <T>(all: readonly T[]) => all[Math.floor(next() * all.length)] as T,
  }
}

interface World {
  readonly words: readonly string[]
  /** Commands that make the faults, and those that take them back. */
  readonly make: readonly string[]
  readonly undo: readonly string[]
}

function worldOf(seed: number, lane: number): World {
  const { chance, one } = random(seed)
  const family = one([4, 4, 6] as const)
  const ip = addressesOf(lane)[family]
  const from = one(['a', 'b', 'node'] as const)
  const to = one((['a', 'b', 'node', 'outside', 'nowhere'] as const).filter((name) => name !== from))
  const port = one(['80', '81', '53/udp', '54/udp', undefined])
  const [make, undo]: [string[], string[]] = [[], []]
  const forwarding = family === 4 ? 'net.ipv4.ip_forward' : 'net.ipv6.conf.all.forwarding'
  if (chance(0.15)) {
    make.push(`sysctl -qw ${forwarding}=0`)
    undo.push(`sysctl -qw ${forwarding}=1`)
  }
  if (chance(0.2)) {
    const tool = family === 4 ? 'iptables' : 'ip6tables'
    make.push(`${tool} -P FORWARD DROP`)
    undo.push(`${tool} -P FORWARD ACCEPT`)
  }
  if (chance(0.2)) {
    make.push('sysctl -qw net.bridge.bridge-nf-call-iptables=0 net.bridge.bridge-nf-call-ip6tables=0')
    undo.push('sysctl -qw net.bridge.bridge-nf-call-iptables=1 net.bridge.bridge-nf-call-ip6tables=1')
  }
  if (family === 4 && from !== 'node' && to !== 'node' && chance(0.15)) {
    make.push(`sysctl -qw net.ipv4.conf.br0.rp_filter=1; ip route add ${ip[from]}/32 via ${ip.outside}`)
    undo.push(`sysctl -qw net.ipv4.conf.br0.rp_filter=0; ip route del ${ip[from]}/32`)
  }
  if (chance(0.4)) {
    const word = family === 4 ? 'ip' : 'ip6'
    // Rules of input also drop what asks for the MAC of the node, in IPv6.
    const hook = one(family === 4 ? ['forward', 'forward', 'input', 'output'] : ['forward', 'output'])
    const links = [...(hook === 'output' ? [] : ['iifname "br0"']), ...(hook === 'input' ? [] : ['oifname "up0"'])]
    const ends = [`${word} saddr ${one([ip.a, ip.b, ip.node])}`, `${word} daddr ${one([ip.a, ip.b, ip.outside])}`]
    const rules = [
      ...(chance(0.3) ? [`${one(ends)} accept`] : []),
      `${one([...ends, ...links, ends.join(' ')])} ${one(['drop', 'reject'])}`,
    ]
    make.push(
      `nft -f - <<END\ntable inet strict { chain wall { type filter hook ${hook} priority 5; ${rules.join('; ')}; }; }\nEND`,
    )
    undo.push('nft delete table inet strict')
  }
  return { words: [ip[from], ip[to], ...(port === undefined ? [] : [port])], make, undo }
}

describe('plumb trace over generated nodes', () => {
  it(`oracle and packet agree in ${WORLDS * LANES} worlds`, async function inLanes(this: Mocha.Context) {
    this.timeout(290_000)
    const seen = new Map<string, number>()
    const wrong: string[] = []
    const lane = (n: number) =>
      inNamespaces(['node', 'a', 'b', 'outside'] as const, async (spaces: Spaces) => {
        const { node, a, b } = spaces
        await nodeWithPods(spaces, n)
        await sh(node, `sysctl -qw net.bridge.bridge-nf-call-ip6tables=1; ip link set br0 address ${MAC}`)
        // The reverse path filter drops what asks for the MAC of the node, too.
        for (const pod of [a, b]) await sh(pod, `ip neigh replace 10.${n}.0.1 lladdr ${MAC} dev eth0`)
        const listeners = [a, b].map((pod) =>
          Bun.spawn(['nsenter', `--net=${pod.path}`, '--', process.execPath, '-e', LISTENER], { stdout: 'pipe' }),
        )
        try {
          for (const one of listeners) await one.stdout.getReader().read()
          for (let i = 0; i < WORLDS; i++) {
            const { words, make, undo } = worldOf(1000 * n + i, n)
            await sh(node, make.join('\n'))
            const said = await traced(node, ...words)
            await sh(node, undo.join('\n'))
            seen.set(said.lostAt ?? 'arrives', (seen.get(said.lostAt ?? 'arrives') ?? 0) + 1)
            if (said.differsAt !== undefined)
              wrong.push(`${words.join(' ')} with ${make.join('; ') || 'no fault'}: ${said.conclusion}`)
          }
        } finally {
          for (const one of listeners) one.kill('SIGKILL')
        }
      }).call(this)
    await Promise.all(Array.from({ length: LANES }, (_, i) => lane(i + 1)))
    assert.deepEqual(wrong, [])
    // The worlds have all outcomes.
    for (const hop of ['arrives', 'route', 'rules', 'receiver'])
      assert.ok((seen.get(hop) ?? 0) > 5, `${hop}: ${[...seen]}`)
  })
})
