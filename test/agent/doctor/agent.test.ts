// lane: long
// Tests agent/parts/data-path.ts: what the agent says by itself of faults that the doctor knows.
import assert from 'node:assert/strict'
import { chmodSync, copyFileSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { DIST, type Fixture, sh, withFixture } from '../../support/doctor.ts'
import { exposition, value } from '../../support/exposition.ts'
import { until } from '../../support/harness.ts'

const LATE = 45_000

/** A fault, what the agent says, and how the fault ends. */
interface Told {
  readonly code: string
  readonly state: 'degraded' | 'not ready'
  make(fixture: Fixture): Promise<void> | void
  readonly says: RegExp
  end(fixture: Fixture): Promise<void> | void
}

const network = ({ lists }: Fixture) => join(lists, '10-flannel.conflist')
const first = ({ lists }: Fixture) => join(lists, '05-other.conflist')

const TOLD: readonly Told[] = [
  {
    code: 'DR14',
    state: 'degraded',
    make: ({ node }) => sh(node.ns, 'iptables -t nat -A POSTROUTING -s 10.244.0.0/16 -j MASQUERADE'),
    says: /^The chain ip nat POSTROUTING of another program masquerades packets from 10\.244\.\d+\.0\/24 to /,
    end: ({ node }) => sh(node.ns, 'iptables -t nat -D POSTROUTING -s 10.244.0.0/16 -j MASQUERADE'),
  },
  {
    code: 'DR28',
    state: 'not ready',
    make: ({ node }) => sh(node.ns, 'ip addr add 10.99.0.1/24 dev cni0'),
    says: /^The bridge cni0 has the address 10\.99\.0\.1\/24, and the subnet of this node is 10\.244\.\d+\.0\/24: /,
    end: ({ node }) => sh(node.ns, 'ip addr del 10.99.0.1/24 dev cni0'),
  },
  {
    code: 'DR38',
    state: 'not ready',
    make: (fixture) => renameSync(network(fixture), `${network(fixture)}.off`),
    says: /^There is no \*\.conflist, \*\.conf or \*\.json file in \S+: the node says "cni config uninitialized" /,
    end: (fixture) => renameSync(`${network(fixture)}.off`, network(fixture)),
  },
  {
    code: 'DR39',
    state: 'degraded',
    make: (fixture) =>
      writeFileSync(
        first(fixture),
        JSON.stringify({ cniVersion: '1.0.0', name: 'other', plugins: [{ type: 'bridge' }] }),
      ),
    says: /^The runtime takes \S+05-other\.conflist \(bridge\), not \S+10-flannel\.conflist: it is first by name: /,
    end: (fixture) => rmSync(first(fixture)),
  },
  {
    code: 'DR40',
    state: 'not ready',
    make: ({ bin }) => {
      rmSync(join(bin, 'bridge'))
      copyFileSync(join(DIST, 'bridge'), join(bin, 'bridge'))
      chmodSync(join(bin, 'bridge'), 0o644)
    },
    says: /^\S+bridge is not executable: pods of the network cbr0 do not start /,
    end: ({ bin }) => chmodSync(join(bin, 'bridge'), 0o755),
  },
]

async function figure({ node }: Fixture, code: string): Promise<number> {
  const answer = await fetch('http://plumb/metrics', { unix: join(node.dir, 'agent.sock') })
  return value(exposition(await answer.text()), 'plumb_doctor_findings', { code, severity: 'error' })
}

describe('plumb agent and what the doctor knows', () => {
  it(
    `tells each of ${TOLD.map(({ code }) => code).join(', ')} alone by itself, in the status, in /readyz and in metrics, until it has ended`,
    withFixture(async (fixture) => {
      const { agent } = fixture
      for (const { code, state, make, says, end } of TOLD) {
        await make(fixture)
        const found = await until(async () => {
          const status = await agent.status()
          return status?.findings.length ? status : undefined
        }, LATE).catch(() => assert.fail(`${code} is not told`))
        assert.deepEqual([found?.findings.map((one) => one.code), found?.state], [[code], state], JSON.stringify(found))
        assert.match(found?.findings[0]?.text ?? '', says)
        const [answer = ''] = (await agent.readyz()).split('\n')
        const head = state === 'degraded' ? '200 degraded: ' : '503 '
        assert.ok(answer.startsWith(`${head}${found?.findings[0]?.text}; run `), answer)
        assert.equal(await figure(fixture, code), 1)
        await end(fixture)
        await until(async () => (await agent.status())?.state === 'ready', LATE).catch(async () =>
          assert.fail(`${code} has not ended: ${JSON.stringify(await agent.status())}`),
        )
      }
    }),
  )

  it(
    'DR38, DR40: tells nothing of a folder of networks that is not known to be that of the runtime',
    withFixture(async (fixture) => {
      const { node, lists } = fixture
      await fixture.agent.stop()
      renameSync(network(fixture), `${network(fixture)}.off`)
      const agent = node.agent()
      await agent.ready(LATE)
      writeFileSync(
        join(lists, '10-other.conflist'),
        JSON.stringify({ cniVersion: '1.0.0', name: 'other', plugins: [{ type: 'not-there' }] }),
      )
      // The checks are made after a change of a chain, too, and this one is found with them.
      await sh(node.ns, 'iptables -t nat -A POSTROUTING -s 10.244.0.0/16 -j MASQUERADE')
      await until(async () => ((await agent.status())?.findings.length ?? 0) > 0, LATE)
      assert.deepEqual(
        (await agent.status())?.findings.map(({ code }) => code),
        ['DR14'],
      )
    }),
  )
})
