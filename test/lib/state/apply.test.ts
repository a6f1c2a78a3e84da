// lane: quick
// Tests lib/state.
import assert from 'node:assert/strict'
import { failures, rows } from '../../../lib/os/iproute2.ts'
import type { Output, Run } from '../../../lib/os/run.ts'
import { ApplyError, apply, batches } from '../../../lib/state/apply.ts'
import type { Addr } from '../../../lib/state/kinds/addr.ts'
import type { Element } from '../../../lib/state/kinds/element.ts'
import type { Fdb } from '../../../lib/state/kinds/fdb.ts'
import type { Link } from '../../../lib/state/kinds/link.ts'
import type { Route } from '../../../lib/state/kinds/route.ts'
import type { Sysctl } from '../../../lib/state/kinds/sysctl.ts'
import type { Resource } from '../../../lib/state/resource.ts'

const POD = '/run/netns/pod' as const
const veth = {
  kind: 'link',
  ns: 'host',
  name: 'veth1',
  type: 'veth',
  up: true,
  port: { master: 'br0' },
  peer: { ns: POD, name: 'eth0' },
} as unknown as Link
const shared = { kind: 'link', ns: 'host', name: 'br0', type: 'bridge', up: true, shared: true } as unknown as Link
const addr = (ns: string, cidr: string) => ({ kind: 'addr', ns, dev: 'eth0', cidr }) as unknown as Addr
const route = { kind: 'route', ns: POD, dev: 'eth0', dst: '0.0.0.0/0', via: ['10.1.0.1'] } as unknown as Route
const sysctl = (ns: string) => ({ kind: 'sysctl', ns, name: 'ipv4/ip_forward', value: '1' }) as unknown as Sysctl
const fdb = { kind: 'fdb', ns: 'host', dev: 'veth1', mac: '02:00:00:00:00:01' } as unknown as Fdb
const element: Element = { kind: 'element', ns: 'host', set: 'masq4', key: '10.1.0.0/24', owner: 'net' }

describe('failures()', () => {
  it('gives what was said of each line, without the words that always stand before it', () => {
    const { byLine, rest } = failures(
      'RTNETLINK answers: File exists\nCommand failed -:2\nError: Nexthop has invalid gateway.\nCommand failed -:5\n',
    )
    assert.deepEqual(
      [...byLine],
      [
        [2, 'File exists'],
        [5, 'Nexthop has invalid gateway.'],
      ],
    )
    assert.equal(rest, '')
  })
  it('keeps several lines for one command together, and what belongs to none apart', () => {
    const { byLine, rest } = failures('Error: one\ntwo\nCommand failed -:1\nError: argument "x" is wrong\n')
    assert.deepEqual([...byLine], [[1, 'one two']])
    assert.equal(rest, 'Error: argument "x" is wrong')
  })
  it('knows a command that failed without a word, and a tool that said nothing', () => {
    assert.deepEqual([...failures('Command failed -:3\n').byLine], [[3, 'failed']])
    assert.deepEqual(failures(''), { byLine: new Map(), rest: '' })
  })
  it('is not taken in by text that only looks like a failure', () => {
    assert.equal(failures('the Command failed -:3\n').byLine.size, 0)
    assert.equal(failures('Command failed -:x\n').byLine.size, 0)
  })
})

describe('rows()', () => {
  it('gives one array per asking line, without the empty objects that iproute2 prints for filtered links', () => {
    assert.deepEqual(rows('[{"ifname":"a"},{}]\n[]\n[{},{"ifname":"b"}]\n'), [[{ ifname: 'a' }], [], [{ ifname: 'b' }]])
  })
  it('gives none for no output', () => assert.deepEqual(rows(''), []))
})

describe('batches()', () => {
  it('removes links as a group of their own at the end of a batch, and one link before other lines by its name', () => {
    const drop = ['veth1', 'veth2'].map((name) => ({ ...veth, name }) as Link)
    const said = text({ put: [], drop })
    const [, group = ''] = / group (\d+)/.exec(said) ?? []
    assert.ok(Number(group) >= 0x5000_0000 && Number(group) < 0x6000_0000, group)
    assert.equal(
      said,
      `\nhost ip: link set dev veth1 group ${group} | link set dev veth2 group ${group} | link delete group ${group}`,
    )
    const alone = /^\nhost ip: link set dev veth2 group (\d+) \| link delete group \1$/
    assert.match(text({ put: [], drop: drop.slice(1) }), alone)
    const inPod = { ...veth, ns: POD, type: 'macvlan' } as unknown as Link
    assert.match(
      text({ put: [], drop: [inPod] }),
      /netns\/pod ip: link set dev veth1 group (\d+) \| link delete group \1$/,
    )
    const before = text({ put: [addr('host', '10.1.0.1/24')], drop: drop.slice(1) })
    assert.match(before, /^\nhost ip: link delete dev veth2 \| addr replace/)
  })
  it("puts the node's links before its files, the pod's files before its addresses, and nft last", () => {
    const put: Resource[] = [element, route, addr(POD, '10.1.0.2/24'), sysctl(POD), fdb, sysctl('host'), veth]
    assert.equal(
      text({ put, drop: [] }),
      `
host ip: link add name veth1 up master br0 type veth peer name eth0 netns /run/netns/pod
host file: net/ipv4/ip_forward = 1
host bridge: fdb replace 02:00:00:00:00:01 dev veth1 master static sticky
${POD} file: net/ipv4/ip_forward = 1
${POD} ip: route add 0.0.0.0/0 via 10.1.0.1 dev eth0 | addr replace 10.1.0.2/24 brd + dev eth0
host nft: add element inet plumb masq4 { 10.1.0.0/24 comment "net" }`,
    )
  })
  it('removes before it makes, within one process', () => {
    assert.equal(
      text({ put: [addr('host', '10.1.0.1/24')], drop: [addr('host', '10.9.0.1/24')] }),
      '\nhost ip: addr delete 10.9.0.1/24 dev eth0 | addr replace 10.1.0.1/24 brd + dev eth0',
    )
  })
  it('is one process per namespace and tool, however many resources there are', () => {
    const put = Array.from({ length: 300 }, (_, i) => addr(i % 2 ? 'host' : POD, `10.1.${i % 250}.${i % 7}/32`))
    assert.deepEqual(
      batches({ put, drop: put }).map(({ ns, tool, steps }) => [ns, tool, steps.length]),
      [
        ['host', 'ip', 300],
        [POD, 'ip', 300],
      ],
    )
  })
  it('starts nothing for an empty plan', () => assert.deepEqual(batches({ put: [], drop: [] }), []))
  it('writes addresses with a broadcast where there is one, and IPv6 without duplicate address detection', () => {
    const put = ['10.1.0.2/24', '10.1.0.2/31', '10.1.0.2/32', 'fd00::2/64'].map((cidr) => addr('host', cidr))
    assert.equal(
      text({ put: [...put, { ...addr('host', 'fd00::3/64'), dad: true }], drop: [] }),
      '\nhost ip: addr replace 10.1.0.2/24 brd + dev eth0 | addr replace 10.1.0.2/31 dev eth0 | addr replace 10.1.0.2/32 dev eth0 | addr replace fd00::2/64 nodad dev eth0 | addr replace fd00::3/64 dev eth0',
    )
  })
  it('writes every attribute of a route, and several gateways as one multipath route', () => {
    const full = { ...route, mtu: 1400, advmss: 1300, priority: 5, table: 100, scope: 200 } as Route
    const several = { ...route, dst: '10.5.0.0/16', via: ['10.1.0.1', '10.1.0.2'] } as unknown as Route
    const none = { ...route, dst: '10.6.0.0/16', via: [], scope: 253 } as unknown as Route
    assert.equal(
      text({ put: [full, several, none], drop: [] }),
      `\n${POD} ip: route add 0.0.0.0/0 table 100 metric 5 scope 200 mtu 1400 advmss 1300 via 10.1.0.1 dev eth0 | route add 10.5.0.0/16 nexthop via 10.1.0.1 dev eth0 nexthop via 10.1.0.2 dev eth0 | route add 10.6.0.0/16 scope 253 dev eth0`,
    )
  })
  it("puts a route before or behind another link's to the same place, and a repeated one is no failure", () => {
    const put = [{ ...route, position: 'prepend' } as Route, { ...route, position: 'append' } as Route]
    assert.equal(
      text({ put, drop: [] }),
      `\n${POD} ip: route prepend 0.0.0.0/0 via 10.1.0.1 dev eth0 | route append 0.0.0.0/0 via 10.1.0.1 dev eth0`,
    )
    assert.deepEqual(
      batches({ put, drop: [] })[0]?.steps.map(({ line }) => line.unless?.test('File exists')),
      [true, true],
    )
  })
  it('removes an element by its key', () => {
    assert.equal(text({ put: [], drop: [element] }), '\nhost nft: delete element inet plumb masq4 { 10.1.0.0/24 }')
  })
})

describe('apply()', () => {
  it('gives a line that failed with its command, its resource, and what the tool said', async () => {
    const failing = answering({
      status: 1,
      stdout: '',
      stderr: 'Error: Nexthop has invalid gateway.\nCommand failed -:2\n',
    })
    await assert.rejects(
      apply({ put: [addr(POD, '10.1.0.2/24'), route], drop: [] }, failing.run),
      (thrown: ApplyError) => {
        assert.ok(thrown instanceof ApplyError)
        assert.equal(
          thrown.message,
          `ip in ${POD}: route add 0.0.0.0/0 via 10.1.0.1 dev eth0: Nexthop has invalid gateway.`,
        )
        assert.deepEqual([thrown.resource, thrown.exists], [route, false])
        return true
      },
    )
  })
  it('marks the exclusive creation of a link that is there', async () => {
    const { run } = answering({ status: 1, stdout: '', stderr: 'RTNETLINK answers: File exists\nCommand failed -:1\n' })
    await assert.rejects(apply({ put: [veth], drop: [] }, run), { name: 'ApplyError', exists: true })
  })
  it('goes on after a line whose failure says that it is so already, with what is left, and tells of it', async () => {
    const { run, inputs } = answering(
      { status: 1, stdout: '', stderr: 'Cannot find device "veth1"\nCommand failed -:1\n' },
      { status: 0, stdout: '', stderr: '' },
    )
    const { already } = await apply({ put: [addr('host', '10.1.0.1/24')], drop: [veth] }, run)
    assert.deepEqual(already, [veth])
    assert.deepEqual(inputs, [
      'link delete dev veth1\naddr replace 10.1.0.1/24 brd + dev eth0\n',
      'addr replace 10.1.0.1/24 brd + dev eth0\n',
    ])
  })
  it('makes a shared link where the kernel has none; where nobody can say, the tool finds out', async () => {
    const [create, mark, rest] = [
      'link add name br0 up type bridge\n',
      'link set dev br0 alias plumb-bridge\n',
      'addr replace 10.1.0.1/24 brd + dev eth0\n',
    ]
    const plan = { put: [shared, addr('host', '10.1.0.1/24')], drop: [] }
    const done = { status: 0, stdout: '', stderr: '' }
    for (const isThere of [true, false]) {
      const { run, inputs } = answering(done)
      await apply(plan, Object.assign(run, { link: (name: string) => name === 'br0' && isThere }))
      assert.deepEqual(inputs, [isThere ? rest : create + mark + rest])
    }
    const blind = answering(
      { ...done, status: 1, stderr: 'RTNETLINK answers: File exists\nCommand failed -:1\n' },
      done,
    )
    assert.deepEqual((await apply(plan, blind.run)).already, [shared])
    assert.deepEqual(blind.inputs, [create + mark + rest, mark + rest])
  })
  it('runs one tool after the other, and none after one that failed', async () => {
    const plan = { put: [addr(POD, '10.1.0.2/24'), addr('host', '10.1.0.1/24')], drop: [] }
    const walked = async (...outputs: readonly Output[]) => {
      const steps: string[] = []
      const { run } = answering(...outputs)
      const walking: Run = (argv, stdin, ns) => {
        steps.push(`${argv[0]} ${ns}`)
        return run(argv, stdin, ns)
      }
      const outcome = await apply(plan, walking).then(
        () => 'made',
        (cause: Error) => cause.message,
      )
      return [...steps, outcome]
    }
    const done = { status: 0, stdout: '', stderr: '' }
    assert.deepEqual(await walked(done, done), ['ip host', `ip ${POD}`, 'made'])
    assert.deepEqual(await walked({ ...done, status: 1, stderr: 'Error: no.\nCommand failed -:1\n' }), [
      'ip host',
      'ip: addr replace 10.1.0.1/24 brd + dev eth0: no.',
    ])
  })
  it('takes a tool that fails without naming a line as a failure of its own', async () => {
    const { run } = answering({
      status: 255,
      stdout: '',
      stderr: 'Error: any valid prefix is expected rather than "x".\n',
    })
    await assert.rejects(apply({ put: [veth], drop: [] }, run), {
      name: 'ExecError',
      message: /ip -batch -: Error: any valid prefix is expected/,
    })
    await assert.rejects(apply({ put: [veth], drop: [] }, answering({ status: -1, stdout: '', stderr: '' }).run), {
      message: /ended with status -1/,
    })
  })
})

/** The seam to programs, with the answers they would give; keeps what they were given. */
function answering(...outputs: readonly Output[]): { run: Run; inputs: string[] } {
  const left = [...outputs]
  const inputs: string[] = []
  return {
    inputs,
    async run(_argv, stdin) {
      inputs.push(stdin)
      return left.shift() ?? assert.fail(`one process too many: ${stdin}`)
    },
  }
}

function text(plan: Parameters<typeof batches>[0]): string {
  return batches(plan)
    .map(({ ns, tool, steps }) => `\n${ns} ${tool}: ${steps.map(({ line }) => line.text).join(' | ')}`)
    .join('')
}
