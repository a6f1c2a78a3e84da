// lane: netns
// Tests cli/connectivity and cli/connectivity.ts on two nodes: what it says, and what it leaves.
import assert from 'node:assert/strict'
import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { connectivity, failures, type Member, OUTSIDE, onNodes, PLUMB, wordsOf } from '../../support/connectivity.ts'
import { sh } from '../../support/doctor.ts'

/** Host ports take no TCP of other nodes. */
const NO_PORTS = `nft 'add table inet away; add chain inet away one { type filter hook forward priority -10; }; add rule inet away one iifname "eth0" ct status dnat meta l4proto tcp ct state new drop'`

/** Pods get no SCTP of other nodes. */
const NO_SCTP = `nft 'add table inet no_sctp; add chain inet no_sctp one { type filter hook forward priority -10; }; add rule inet no_sctp one iifname "flannel*" meta l4proto sctp drop'`

/** Pods get no UDP of other nodes by IPv4. */
const STRICT = `nft 'add table ip strict'
  nft 'add chain ip strict through { type filter hook forward priority 0; }'
  nft 'add rule ip strict through ip saddr 10.244.0.0/16 iifname "flannel*" meta l4proto udp drop'`

/** Reads JUnit XML by a parser: the elements, in their order, with their attributes. */
async function elementsOf(xml: string): Promise<{ tag: string; attributes: Record<string, string> }[]> {
  const found: { tag: string; attributes: Record<string, string> }[] = []
  await new HTMLRewriter()
    .on('*', {
      element: ({ tagName, attributes }) =>
        void found.push({ tag: tagName, attributes: Object.fromEntries(attributes) }),
    })
    .transform(new Response(xml))
    .text()
  return found
}

describe('plumb connectivity', () => {
  it(
    'between two healthy nodes all succeeds, and a dropped way fails alone, with its JUnit file',
    onNodes(2, async (members) => {
      const [{ node }] = members as [Member, Member]
      const healthy = await connectivity(members, ...OUTSIDE.flatMap((ip) => ['--outside', ip]))
      assert.deepEqual(failures(healthy), [])
      assert.deepEqual([healthy.status, healthy.findings], [0, []])
      const podToPod = (2 + 2) * 2
      const [plain, byPort, outside] = [(2 * 3 + 2 * 3) * 2 * 6 + podToPod, (2 * 3 + 2 * 2) * 2 * 3, 2 * 2]
      assert.equal(healthy.cases.length, plain + byPort + outside)
      assert.ok(!healthy.notMade.some(({ what }) => /host port|outside|SCTP/.test(what)))
      assert.ok(healthy.cases.every(({ state }) => state === 'ok'))

      await sh(node.ns, NO_PORTS)
      const podless = await connectivity(members, '--from', 'nodes')
      assert.deepEqual([failures(podless), podless.status], [[], 0])
      const ways = new Set(podless.cases.map(({ way }) => way))
      assert.deepEqual([podless.cases.length, [...ways]], [2 * 2 * 6, ['node → other node']])
      await sh(node.ns, NO_SCTP)
      const [alone, withoutSctp] = await Promise.all([
        connectivity(members, '--nodes', 'n2', '--quick'),
        connectivity(members, '--quick'),
      ])
      await sh(node.ns, 'nft delete table inet no_sctp')
      await sh(node.ns, STRICT)
      const lost = withoutSctp.cases.filter(({ state }) => state !== 'ok')
      assert.deepEqual([withoutSctp.cases.length, lost.length, withoutSctp.status], [podToPod * 7, 4, 1])
      for (const { way, test, state, says } of lost) {
        assert.deepEqual([way, test, state], ['pod → pod, other node', 'SCTP', 'failed'])
        assert.equal(says, 'no answer to the first message of an association in 3 s')
      }
      assert.deepEqual([...new Set(alone.cases.flatMap(({ from, to }) => [from.node, to.node]))], ['n2'])
      const junit = join(node.dir, 'junit <&>.xml')
      const { status, stdout } = await node.ns.exec(wordsOf(members, '--junit', junit, '--outside', '172.30.0.2:1'))
      assert.equal(status, 1, stdout)
      const failed = stdout.split('\n').filter((line) => line.startsWith('FAILED'))
      const of = (text: RegExp) => failed.filter((line) => text.test(line)).length
      assert.equal(
        of(/^FAILED (pod|node) → host port, other node: TCP IPv[46] n2 .* → n1 host port \(\S+ port \d+\): .* in 4 s$/),
        4,
      )
      assert.equal(of(/^FAILED pod → outside: TCP IPv4 n[12] pod 1 .* → 172\.30\.0\.2 port 1: .*refuses/), 2)
      assert.equal(failed.length, 4 + 2 + 3, stdout)
      assert.match(
        stdout,
        /^FAILED pod → pod, other node: UDP IPv4 n2 pod 1 \(10\.244\.\d+\.\d+\) → n1 pod 1 \(10\.244\.\d+\.\d+\): no answer to datagrams of 1000 bytes in 3 s$/m,
      )
      assert.match(stdout, /^plumb doctor on n1:\n(Nothing is wrong|error|warning)/m)
      assert.match(stdout, /^plumb doctor on n2:\n(Nothing is wrong|error|warning)/m)
      // A trace and the doctor say more, below the first case of a way and for each node.
      const text = stdout.slice(0, stdout.indexOf('\n\n'))
      assert.match(text, /^FAILED pod → pod, other node: UDP .*\n {2}trace: .+/m)
      assert.match(text, /^ {2}doctor on n2: DR25: systemctl \w+ plumb-agent$/m)
      assert.match(readFileSync(junit, 'utf8'), /<failure message="no answer[^>]*>trace: /)
      const elements = await elementsOf(readFileSync(junit, 'utf8'))
      const suite = elements.find(({ tag }) => tag === 'testsuite')?.attributes
      const cases = elements.filter(({ tag }) => tag === 'testcase')
      assert.equal(cases.length, plain + byPort + 2)
      assert.equal(suite?.['tests'], String(cases.length))
      const failing = elements.filter(({ tag }) => tag === 'failure')
      assert.equal(suite?.['failures'], String(failing.length))
    }),
  )
  it(
    'a node that cannot take part is named, and nothing is left',
    onNodes(1, async (members) => {
      const [near] = members as [Member, Member]
      const said = async (...more: string[]) => {
        const { status, stderr } = await near.node.ns.exec(wordsOf([near], ...more))
        return `${status}: ${stderr}`
      }
      assert.match(
        await said('--far', 'n9=sh -c "echo no such host >&2; exit 7" --'),
        /^1: error 5: Cannot test from n9: the command ended with status 7\n.*\n {2}no such host/s,
      )
      assert.match(
        await said('--far', `n9=env NETCONFPATH=/nowhere ${PLUMB}`),
        /^1: error 5: Cannot test from n9: .*\/nowhere/,
      )
      assert.match(await said('--far', 'n9'), /^2: Cannot read --far "n9": want NAME=COMMAND/)
      assert.match(await said('--far', 'a=x', '--far', 'a=y'), /^2: --far names the node a twice/)
      assert.match(await said('--from', 'x'), /^2: Cannot read --from "x": want pods or nodes/)
      assert.match(await said('--nodes', 'n1,n7'), /^2: --nodes names "n7": want some of n1; see --far/)
      assert.match(await said('nodes'), /^2: plumb connectivity takes no "nodes"/)
      assert.ok(!existsSync('/nowhere'))
    }),
  )
})
