// lane: netns
// Tests cli/policy.ts, cli/policy-trial.ts, agent/policy/view.ts and counters.ts: what people see of the policies of a
// running agent.
import assert from 'node:assert/strict'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { until } from '../../support/harness.ts'
import { fileStore, inCluster, type Node } from '../../support/nodes.ts'
import { type Live, live, policyOf } from '../../support/policy-live.ts'
import { conforms } from '../../support/schemas.ts'

const CONF = { Network: '10.244.0.0/16', SubnetMin: '10.244.1.0', SubnetMax: '10.244.1.0', Backend: { Type: 'vxlan' } }
const NAMES = ['a', 'b', 'c']
const LATE = 20_000
/** Only c may send to port 80 of b. */
const GUARD = policyOf('guard', {
  podSelector: { matchLabels: { app: 'b' } },
  ingress: [{ from: [{ podSelector: { matchLabels: { app: 'c' } } }], ports: [{ port: 80 }] }],
})

interface Said {
  readonly status: number
  readonly stdout: string
  readonly stderr: string
}
type Plumb = (...words: readonly string[]) => Promise<Said>

function inGuarded(
  work: (fixture: Live, node: Node, plumb: Plumb) => Promise<void>,
): (this: Mocha.Context) => Promise<void> {
  return inCluster(
    1,
    (cluster) => [...fileStore(cluster, CONF), `--network-policy=${join(cluster.dir, 'manifests')}`],
    async ({ nodes: [one], dir }, test) => {
      test.timeout(120_000)
      const node = one as Node
      const fixture = await live(node, join(dir, 'manifests'), NAMES)
      const socket = join(dir, 'policy.sock')
      const plumb: Plumb = (...words) =>
        node.ns.exec([join(import.meta.dir, '../../../dist/plumb'), 'policy', ...words, '--policy-socket', socket])
      try {
        const away = await plumb()
        assert.equal(away.status, 2)
        assert.match(
          away.stderr,
          /Cannot reach the agent for network policy at .*policy\.sock: .*systemctl start plumb-agent/,
        )
        fixture.write('space.yaml', { kind: 'Namespace', metadata: { name: 'x' } })
        fixture.write('pods.yaml', ...NAMES.map((name) => fixture.pod(name)))
        fixture.write('guard.yaml', GUARD)
        await node.agent(`--policy-socket=${socket}`).ready(60_000)
        await until(async () => (await fixture.passes('c', 'b')) && !(await fixture.passes('a', 'b')), LATE)
        await work(fixture, node, plumb)
      } finally {
        await fixture.end()
      }
    },
  )
}

const spaces = async ({ ns }: Node) =>
  (await ns.exec(['ip', 'netns', 'list'])).stdout.split('\n').filter((line) => line.startsWith('plumb-trial-'))

describe('plumb policy', () => {
  it(
    'compares policies that nobody has applied with those of the cluster, and applies nothing',
    inGuarded(async (_, __, plumb) => {
      const dir = mkdtempSync(join(tmpdir(), 'plumb-draft-'))
      const file = join(dir, 'draft.json')
      const draft = { ...policyOf('guard', { podSelector: { matchLabels: { app: 'b' } }, ingress: [{}] }) }
      writeFileSync(file, JSON.stringify(draft))
      const compared = await plumb('compare', file)
      assert.equal(compared.status, 1, compared.stderr)
      assert.match(compared.stdout, /^x\/guard stands instead of the one in the cluster$/m)
      assert.match(compared.stdout, /^From x to x: 2 pairs of pods reach more ports$/m)
      assert.match(
        compared.stdout,
        /^ {2}x\/a to x\/b TCP all ports; .* passes then: .*x\/guard ingress\[0\] allows it$/m,
      )
      assert.match(compared.stdout, /^ {2}x\/c to x\/b TCP 1-79, 81-65535; /m)
      conforms('policy-compare', JSON.parse((await plumb('compare', file, '--json')).stdout))
      assert.equal((await plumb('test', 'x/a', 'x/b', '80')).status, 1)
      writeFileSync(file, JSON.stringify(GUARD))
      const same = await plumb('compare', file)
      assert.deepEqual(
        [same.status, same.stdout.split('\n')[1]],
        [0, 'Nothing changes between the pods of this node and others'],
      )
      writeFileSync(file, 'kind: Pod')
      const wrong = await plumb('compare', file)
      assert.equal(wrong.status, 2)
      assert.match(wrong.stderr, /Cannot compare "Pod": want NetworkPolicy/)
      assert.match((await plumb('compare')).stderr, /plumb policy compare takes one FILE/)
      assert.match((await plumb('compare', `${file}-absent`)).stderr, /Cannot read the policies: ENOENT/)
      rmSync(dir, { recursive: true })
    }),
  )
  it(
    'names the policies of each pod, and the peers and ports of one pod',
    inGuarded(async (fixture, _, plumb) => {
      const all = await plumb()
      assert.equal(all.status, 0, all.stderr)
      assert.match(all.stdout, /^POD +ADDRESSES +INGRESS +EGRESS$/m)
      assert.match(all.stdout, new RegExp(`^x/b +${fixture.ip('b').replaceAll('.', '\\.')} +x/guard +-$`, 'm'))
      assert.match(all.stdout, /^x\/a +\S+ +- +-$/m)
      const { stdout } = await plumb('x/b')
      assert.ok(
        stdout.includes(
          '  pods app=c of namespace x, TCP 80: passes (x/guard ingress[0])\n    now x/c\n  all else is refused: isolated by x/guard\n',
        ),
        stdout,
      )
      assert.ok(stdout.includes('what it may reach (egress):\n  everything: no policy selects the pod'), stdout)
      conforms('policy', JSON.parse((await plumb('--json')).stdout))
      const detail = JSON.parse((await plumb('x/b', '--json')).stdout)
      conforms('policy-show', detail)
      const [rule] = detail.ingress.rules
      assert.deepEqual(rule, {
        rule: 'x/guard ingress[0]',
        action: 'Accept',
        peers: ['pods app=c of namespace x'],
        ports: ['TCP 80'],
        pods: ['x/c'],
      })
      const none = await plumb('x/absent')
      assert.equal(none.status, 2)
      assert.match(none.stderr, /There is no pod x\/absent on this node/)
      fixture.write('cluster.yaml', {
        kind: 'ClusterNetworkPolicy',
        metadata: { name: 'closed' },
        spec: {
          tier: 'Admin',
          priority: 1,
          subject: { namespaces: {} },
          egress: [
            {
              name: 'no-web',
              action: 'Deny',
              to: [{ networks: ['192.0.2.0/24'] }],
              protocols: [{ tcp: { destinationPort: { range: { start: 80, end: 81 } } } }],
            },
          ],
        },
      })
      const text = await until(async () => {
        const { stdout } = await plumb('x/b')
        return stdout.includes('closed') && stdout
      }, LATE)
      assert.ok(
        String(text).includes(
          '  192.0.2.0/24, TCP 80-81: is refused (ClusterNetworkPolicy closed (Admin) egress[0] "no-web")\n  all else passes',
        ),
        String(text),
      )
    }),
  )

  it(
    'test: objects and kernel side by side for pods and addresses, TCP, UDP and SCTP; exits with 0 for passes, 1 for refused, 3 when they differ',
    inGuarded(async (_, node, plumb) => {
      const told = async (...words: readonly string[]) => {
        const { stdout, stderr } = await plumb('test', ...words, '--json')
        if (stdout !== '') conforms('policy-test', JSON.parse(stdout))
        const { verdict, kernel, agree } = JSON.parse(
          stdout || `{"verdict":{"passes":${JSON.stringify(stderr)}},"kernel":{}}`,
        )
        return [verdict.passes, kernel.passes, agree]
      }
      assert.deepEqual(await told('x/c', 'x/b', '80'), [true, true, true])
      assert.deepEqual(await told('x/a', 'x/b', '80/tcp'), [false, false, true])
      assert.deepEqual(await told('x/c', 'x/b', '80/udp'), [false, false, true])
      assert.deepEqual(await told('x/c', 'x/b', '80/sctp'), [false, false, true])
      assert.deepEqual(await told('x/b', 'x/c', '80/sctp'), [true, true, true])
      assert.deepEqual(await told('x/b', '192.0.2.1', '53/udp'), [true, true, true])
      assert.deepEqual(await told('192.0.2.1', 'x/b', '80'), [false, false, true])
      // An address of the subnet that is no pod's is closed. The node itself reaches its pods, and they reach it.
      assert.deepEqual(await told('x/a', `10.244.${node.n}.99`, '80'), [false, false, true])
      assert.deepEqual(await told(`10.244.${node.n}.1`, 'x/b', '80'), [true, true, true])
      assert.deepEqual(await told('x/b', `10.244.${node.n}.1`, '80'), [true, true, true])
      const text = await plumb('test', 'x/a', 'x/b', '80')
      assert.equal(text.status, 1, text.stderr)
      assert.equal((await plumb('test', 'x/c', 'x/b', '80')).status, 0)
      assert.match(
        text.stdout,
        /objects: is refused: x\/guard isolates x\/b for ingress, and no rule allows it\n {2}kernel: {2}is refused: a copy/,
      )
      // Somebody replaces the rule that drops. The number of rules stays the same, and so the agent does not look
      // again.
      const listed = await node.ns.exec(['nft', '-a', 'list', 'chain', 'inet', 'plumb_policy', 'denied_in'])
      const [, handle = ''] = /drop # handle (\d+)/.exec(listed.stdout) ?? []
      await node.ns.exec(['nft', 'replace', 'rule', 'inet', 'plumb_policy', 'denied_in', 'handle', handle, 'accept'])
      const differs = await plumb('test', 'x/a', 'x/b', '80')
      assert.equal(differs.status, 3, differs.stdout)
      assert.match(differs.stdout, /kernel: {2}passes: a packet.*\n {2}THEY DIFFER/)
      for (const wrong of [
        ['x/a', 'x/b', '0'],
        ['x/a', 'x/b'],
        ['x/a', 'x/gone', '80'],
        ['x/a', 'fd00::1', '80'],
      ]) {
        const { status, stderr } = await plumb('test', ...wrong)
        assert.deepEqual([status, stderr !== ''], [2, true], wrong.join(' '))
      }
      assert.deepEqual(await spaces(node), [])
    }),
  )

  it(
    'metrics count first packets by policy, and the status has the numbers of pods and policies',
    inGuarded(async (fixture, node) => {
      const http = (path: string) => fetch(`http://agent${path}`, { unix: join(node.dir, 'agent.sock') })
      assert.ok(await fixture.passes('c', 'b'))
      assert.equal(await fixture.passes('a', 'b'), false)
      const text = await until(async () => {
        const found = await (await http('/metrics')).text()
        return (
          /plumb_policy_packets_total\{direction="ingress",action="deny",policies="x\/guard"\} [1-9]/.test(found) &&
          /plumb_policy_packets_total\{direction="ingress",action="allow",policies="x\/guard"\} [1-9]/.test(found) &&
          found
        )
      }, LATE)
      assert.match(String(text), /^plumb_policies\{kind="NetworkPolicy"\} 1$/m)
      assert.match(String(text), /^plumb_policy_pods 3$/m)
      assert.match(String(text), /^plumb_policy_selected_pods\{direction="ingress"\} 1$/m)
      assert.match(String(text), /^plumb_policy_unknown_address_packets_total \d+$/m)
      fixture.write('wrong.yaml', policyOf('wrong', { podSelector: {}, policyTypes: ['Sideways'] }))
      await until(
        async () => (await (await http('/metrics')).text()).includes('plumb_policy_objects_refused 1\n'),
        LATE,
      )
      const { policy } = (await (await http('/status')).json()) as { policy: object }
      // What nobody can read isolates its pods.
      assert.deepEqual(
        { ...policy, steps: 0 },
        {
          policies: 2,
          clusterPolicies: 0,
          pods: 3,
          selected: { ingress: 3, egress: 3 },
          closed: 0,
          refused: 1,
          steps: 0,
        },
      )
      const pods = (await (await http('/policy')).json()) as readonly { pod: string; ingress: readonly string[] }[]
      assert.deepEqual(
        pods.map(({ pod, ingress }) => [pod, ingress]),
        [
          ['x/a', ['x/wrong']],
          ['x/b', ['x/guard', 'x/wrong']],
          ['x/c', ['x/wrong']],
        ],
      )
    }),
  )
})
