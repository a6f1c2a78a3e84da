// lane: netns
// Tests agent/node/systemd.ts.
import assert from 'node:assert/strict'
import { mkdtempSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { datagram } from '../../../lib/os/sockets.ts'
import { until } from '../../support/harness.ts'
import { fileStore, inCluster, type Node } from '../../support/nodes.ts'

// What systemd does: a datagram socket, and what comes in, one line each. perl is in every Debian.
const LISTENER =
  'use Socket; $| = 1; socket(S, AF_UNIX, SOCK_DGRAM, 0); bind(S, pack_sockaddr_un($ARGV[0] =~ s/^@/\\0/r)) or die $!; print "bound\n"; while (defined recv(S, $m, 4096, 0)) { $m =~ s/\n/|/g; print "$m\n" }'

/** Listens at a place while the work is done; `heard` gives what has come. */
async function listening(path: string, work: (heard: () => string[]) => Promise<void>): Promise<void> {
  const child = Bun.spawn(['perl', '-e', LISTENER, path], { stdin: 'ignore', stdout: 'pipe' })
  let said = ''
  void (async () => {
    for await (const text of child.stdout.pipeThrough(new TextDecoderStream())) said += text
  })()
  try {
    await until(() => said.startsWith('bound\n'))
    await work(() => said.split('\n').slice(1, -1))
  } finally {
    child.kill('SIGKILL')
    await child.exited
  }
}

describe('datagram()', () => {
  const dir = mkdtempSync('/run/notify-')
  for (const path of [join(dir, 'socket'), '@plumb-test'])
    it(`reaches ${path}`, () =>
      listening(path, async (heard) => {
        datagram(path, 'READY=1\nSTATUS=é')
        await until(() => assert.deepEqual(heard(), ['READY=1|STATUS=é']) === undefined, 2000)
      }))
  it('says why it cannot', () =>
    assert.throws(() => datagram(join(dir, 'nobody'), 'x'), /^Error: nobody listens there$/))
})

describe('plumb agent', () => {
  it(
    'under systemd says that it is ready when the first sync is done, as flanneld does, then how it stands, and when it ends',
    inCluster(
      1,
      (cluster) => fileStore(cluster, { Network: '10.244.0.0/16' }),
      async ({ nodes, dir }) => {
        const path = join(dir, 'notify')
        await listening(path, async (heard) => {
          const agent = (nodes[0] as Node).agentBy(['env', `NOTIFY_SOCKET=${path}`])
          await agent.ready()
          await until(() => heard().at(-1) === 'STATUS=ready')
          assert.equal(heard().at(-2), 'READY=1')
          writeFileSync(join(dir, 'store/subnets/10.244.0.0-24'), '{}')
          await until(() => heard().at(-1) === 'STATUS=degraded: 1 entry of the store cannot be read')
          await agent.stop()
          await until(() => heard().at(-1) === 'STOPPING=1')
          assert.equal(heard().filter((one) => one === 'READY=1').length, 1)
        })
      },
    ),
  )
})
