// lane: crash
// Tests lib/verbs, killed at every step.
import assert from 'node:assert/strict'
import { existsSync, readdirSync } from 'node:fs'
import { conf as shaped } from '../../../support/bandwidth.ts'
import { chainedNetwork } from '../../../support/chained-network.ts'
import { ENV, flannelConf } from '../../../support/flannel.ts'
import { inNamespaces, type Namespace, ping, snapshot, standIns, until } from '../../../support/harness.ts'
import { portsAsNetwork } from '../../../support/host-ports.ts'
import { JOURNAL, noted, ports } from '../../../support/journal.ts'
import { bridgeConf, type Conf, type Network, network, settled, traces } from '../../../support/network.ts'
import { skip } from '../../../support/skip.ts'
import { killing } from '../../../support/tool-shims.ts'
import { STRACE, stand } from './shots.ts'

const conf = (type: string): Conf => ({ cniVersion: '1.1.0', name: bridgeConf().name, type })

interface Scene {
  readonly net: Network
  readonly pod: Namespace
  /** A call that is killed in this program. */
  killed(command: 'ADD' | 'DEL' | 'GC', file: string): Promise<void>
  /** Throws unless the node is as after another pod. */
  clean(): Promise<void>
}

describe('what the crash matrix found', () => {
  before(function () {
    if (!existsSync(STRACE)) skip(this, `${STRACE} is not installed, which stops a program at a system call`)
  })

  for (const next of ['DEL', 'GC'] as const)
    it(
      `sbr: ${next} works after an ADD that was killed before its first route, though no table is there`,
      inScene('sbr', chainedNetwork, async ({ net, pod, killed, clean }) => {
        await killed('ADD', killing('sbr', 1, 'before', ['ip']).file)
        await (next === 'DEL' ? net.del(pod) : net.gc())
        await clean()
      }),
    )

  it(
    'bandwidth: ADD works after one that was killed before its bucket, though nothing is there to hang a filter on',
    inScene('bandwidth', chainedNetwork, async ({ net, pod, killed, clean }) => {
      await killed('ADD', killing('bandwidth', 1, 'before', ['ip']).file)
      await net.check(pod, await net.add(pod))
      await net.del(pod)
      await clean()
    }),
  )

  it(
    'bandwidth: the pod reaches its gateway after an ADD that follows a DEL killed at its end',
    inScene('bandwidth', chainedNetwork, async ({ net, pod, killed, clean }) => {
      await net.add(pod)
      await killed('DEL', stand('bandwidth', { name: 'exit_group', nth: 1 }).file)
      await net.add(pod)
      assert.ok(await until(() => ping(pod, '10.1.0.1')))
      await net.del(pod)
      await clean()
    }),
  )

  it(
    'an entry: ADDs that are killed before it is in place leave nothing behind that the next call does not take the place of',
    inScene('portmap', portsAsNetwork, async ({ net, pod, killed, clean }) => {
      for (let round = 0; round < 3; round++) {
        await killed('ADD', stand('portmap', { name: 'rename', nth: 1 }).file)
        await net.del(pod)
      }
      assert.deepEqual([noted('portmap'), readdirSync(JOURNAL).filter((name) => name.includes('draft'))], [[], []])
      await clean()
    }),
  )

  for (const next of ['DEL', 'GC'] as const)
    it(
      `flannel: ${next} after an ADD that was killed before its state is in place takes the draft of it`,
      inScene('flannel', network, async ({ net, pod, killed }) => {
        await killed('ADD', stand('flannel', { name: 'rename', nth: 1 }).file)
        await (next === 'DEL' ? net.del(pod) : net.gc())
        assert.deepEqual([readdirSync('/var/lib/cni/flannel'), traces(pod, net.conf)], [[], []])
      }),
    )

  it(
    'a host port: DEL after one that was killed between the port and its folder takes the folder, too',
    inScene('portmap', portsAsNetwork, async ({ net, pod, killed, clean }) => {
      await net.add(pod)
      await killed('DEL', stand('portmap', { name: 'rmdir', nth: 2 }).file)
      assert.deepEqual(ports(), ['tcp-8080'])
      await net.del(pod)
      assert.deepEqual(ports(), [])
      await clean()
    }),
  )

  it(
    'a bridge that does all by itself: ADD works after a GC that was killed between its parts and its link',
    inScene('bridge', fused, async ({ net, pod, killed, clean }) => {
      await net.add(pod)
      await killed('GC', stand('bridge', { name: 'rmdir', nth: 1 }).file)
      await net.check(pod, await net.add(pod))
      await net.del(pod)
      await clean()
    }),
  )
})

function fused(node: Namespace): Network {
  return network(node, {
    ...bridgeConf({ isDefaultGateway: true }, '10.1.0.0/24'),
    portMappings: true,
    firewall: true,
    runtimeConfig: { portMappings: [{ hostPort: 8080, containerPort: 80, protocol: 'tcp' }] },
  })
}

function inScene(
  type: string,
  networkOf: (node: Namespace, conf: Conf) => Network,
  work: (scene: Scene) => Promise<void>,
) {
  return inNamespaces(['node', 'pod', 'other'], async ({ node, pod, other }) => {
    // The kernel's own link-local addresses, tentative for a second or two, would be one more thing to wait for.
    await node.exec(['sh', '-c', 'echo 0 >/proc/sys/net/ipv6/conf/default/accept_dad'])
    const net = networkOf(
      node,
      type === 'bandwidth' ? shaped() : type === 'flannel' ? flannelConf(ENV.dual, { dataDir: undefined }) : conf(type),
    )
    await net.add(other)
    await net.del(other)
    const before = await settled(() => snapshot(node))
    await work({
      net,
      pod,
      async killed(command, file) {
        standIns.set(`${type} ${command}`, file)
        const call = { ADD: () => net.add(pod), DEL: () => net.del(pod), GC: () => net.gc() }[command]()
        await assert.rejects(
          call.finally(() => standIns.clear()),
          /(137|-1) !== 0/,
        )
      },
      async clean() {
        assert.equal(await settled(() => snapshot(node)), before)
        assert.deepEqual(traces(pod, net.conf), [])
      },
    })
  })
}
