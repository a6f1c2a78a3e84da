// lane: vm
// Tests agent/services with real associations of SCTP, and cli/connectivity beside a kernel that has SCTP.
import assert from 'node:assert/strict'
import { execa } from 'execa'
import { attempt } from '../../../cli/connectivity/attempt.ts'
import { serveInits } from '../../../cli/connectivity/echo-server.ts'
import { linesOf } from '../../../lib/text/lines.ts'
import { parse } from '../../../lib/text/values.ts'
import { inNamespaces, until } from '../../support/harness.ts'
import { SIDES, wireSctpWorld } from '../../support/sctp.ts'
import { type Fixture, withFixture } from '../../support/services-fixture.ts'

const [VIP, NODE, PORT] = ['10.96.0.10', '172.30.0.1', 30_080] as const
const SCTP = 132

/** Answers each association on port 8080 of a pod with the pod's name, until it is ended. */
async function serve(netns: string, name: string): Promise<Bun.Subprocess> {
  const script = `socket(S, PF_INET, SOCK_STREAM, ${SCTP}) || die "socket: $!"; bind(S, sockaddr_in(8080, INADDR_ANY)) || die "bind: $!"; listen(S, 99); $| = 1; print "ready\\n"; while (accept(C, S)) { syswrite(C, "${name}"); close C }`
  const child = Bun.spawn(['nsenter', `--net=${netns}`, 'perl', '-MSocket', '-e', script], {
    stdout: 'pipe',
    stderr: 'inherit',
  })
  assert.equal((await linesOf(child.stdout).next()).value, 'ready')
  return child
}

/** What an association says, or why there is none. */
async function asked(netns: string, ip: string, port: number): Promise<string> {
  const script = `alarm 10; socket(S, PF_INET, SOCK_STREAM, ${SCTP}) || die "socket: $!"; connect(S, sockaddr_in(${port}, inet_aton("${ip}"))) || die "connect: $!"; sysread(S, $x, 9); print $x`
  const { stdout, stderr } = await execa('nsenter', [`--net=${netns}`, 'perl', '-MSocket', '-e', script], {
    reject: false,
  })
  return stdout || stderr
}

describe('Services: SCTP', () => {
  // Two pods of one bridge reach each other through a Service only with it.
  before(() => execa('modprobe', ['br_netfilter']))

  it(
    'associations by ClusterIP and by NodePort reach both endpoints, and then the one that is left',
    withFixture(async (fixture: Fixture) => {
      const { n1, n2, client } = fixture
      const servers = [await serve(`${n1.ns.path}-a`, 'a'), await serve(`${n2.ns.path}-c`, 'c')]
      try {
        const spec = { clusterIP: VIP, type: 'NodePort', ports: [{ port: 5000, protocol: 'SCTP', nodePort: PORT }] }
        const ports = [{ name: '', port: 8080, protocol: 'SCTP' }]
        fixture.service('s', spec)
        fixture.slice('s', ['a', 'c'], { ports })
        await fixture.sync()
        for (const [who, ip, port] of [
          [`${n1.ns.path}-p`, VIP, 5000],
          [n1.ns.path, VIP, 5000],
          [client.path, NODE, PORT],
        ] as const) {
          const seen = new Set<string>()
          await until(async () => seen.add(await asked(who, ip, port)).size === 2, 60_000)
          assert.deepEqual([...seen].sort(), ['a', 'c'], `${who} to ${ip}`)
        }
        fixture.slice('s', ['c'], { ports })
        await fixture.sync()
        for (let i = 0; i < 4; i++) assert.equal(await asked(`${n1.ns.path}-p`, VIP, 5000), 'c')
      } finally {
        for (const one of servers) one.kill('SIGKILL')
        await Promise.all(servers.map(({ exited }) => exited))
      }
    }),
  )
})

describe('plumb connectivity: SCTP', () => {
  before(() => execa('modprobe', ['sctp']))

  it(
    'beside a kernel that answers ABORT, the echo server is heard through connection tracking; ABORT alone counts',
    inNamespaces(['client', 'router', 'server'], async (world) => {
      await wireSctpWorld(world)
      const port = 7070
      for (const { client, server } of Object.values(SIDES)) {
        const tried = { protocol: 'SCTP', to: server, port, bytes: 0 } as const
        const once = () => attempt(parse.netns(world.client.path), tried)
        const says = "ABORT comes back from the receiver's kernel"
        await until(async () => assert.deepEqual(await once(), { state: 'arrived', says }) ?? true, 30_000)
        const echoes = serveInits(parse.netns(world.server.path), server, port)
        try {
          const wanted = { state: 'arrived', says: 'INIT ACK comes back', saw: client }
          await until(async () => assert.deepEqual(await once(), wanted) ?? true, 30_000)
        } finally {
          echoes.close()
        }
      }
    }),
  )
})
