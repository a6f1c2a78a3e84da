// lane: long
// Tests lib/verbs and lib/journal, killed at every step.
import assert from 'node:assert/strict'
import { existsSync } from 'node:fs'
import { leftOf } from '../../support/attachment-leftovers.ts'
import { inNamespaces, type Namespace, ping, plugin, until } from '../../support/harness.ts'
import { entries } from '../../support/journal.ts'
import { bridgeConf, containerId, type Network, network } from '../../support/network.ts'
import { skip } from '../../support/skip.ts'
import { STRACE, stand } from '../verbs/crash/shots.ts'

/** By which a process changes files, and hands a tool its input. */
const CALLS = ['mkdir', 'link', 'symlink', 'unlink', 'rename', 'utimensat', 'fsync', 'write', 'pwrite64']

type Follow = (net: Network, pod: Namespace) => Promise<void>
const SEQUELS: Readonly<Record<string, Follow>> = {
  DEL: (net, pod) => net.del(pod),
  GC: (net) => net.gc(),
  async 'ADD and DEL'(net, pod) {
    await net.add(pod)
    for (const address of ['10.1.0.1', 'fd00:1::1']) await until(() => ping(pod, address))
    await net.del(pod)
  },
}

describe('SIGKILL of plumb at every change that it makes to files', () => {
  before(function () {
    if (!existsSync(STRACE)) skip(this, `${STRACE} is not installed, which stops a program at a system call`)
  })

  for (const command of ['ADD', 'DEL'] as const) {
    for (const [sequel, follow] of Object.entries(SEQUELS)) {
      it(`in ${command}: ${sequel} leaves nothing`, async function () {
        this.timeout(200_000)
        let killed = 0
        for (const call of CALLS) {
          for (let [at, ended] = [1, false]; !ended; at++) {
            await inNamespaces(['node', 'pod'], async ({ node, pod }) => {
              const net = network(
                node,
                bridgeConf({ isDefaultGateway: true, macspoofchk: true }, '10.1.0.0/24', 'fd00:1::/64'),
              )
              if (command === 'DEL') await net.add(pod)
              const { status, stdout } = await plugin(
                'bridge',
                {
                  command,
                  conf: net.conf,
                  containerId: containerId(pod),
                  netns: pod,
                  file: stand('bridge', { name: call, nth: at }).file,
                },
                node,
              )
              assert.ok(status === 0 || status === 137 || status === -1, `${status}: ${stdout}`)
              ended = status === 0
              if (!ended) killed++
              const about = (cause: Error) => assert.fail(`killed at ${call} ${at}: ${cause.message}`)
              // An ADD that came to its end would be refused if it came again, and so it would before a DEL that has
              // not begun.
              const stands = entries().some(({ unfinished, parts }) => !unfinished && parts['link'])
              await (stands && sequel !== 'GC' ? net.del(pod) : follow(net, pod)).catch(about)
              // One draft per network stays until the next ADD takes its place; it reserves nothing.
              await until(
                async () =>
                  assert.deepEqual(
                    (await leftOf(net.conf, node, pod)).filter((path) => !path.endsWith('/draft')),
                    [],
                  ) === undefined,
                1000,
              ).catch(about)
            }).call(this)
          }
        }
        assert.ok(killed > 6, `${command} made ${killed} changes`)
      })
    }
  }
})
