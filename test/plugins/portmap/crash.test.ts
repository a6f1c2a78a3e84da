// lane: long
// Tests plugins/portmap.ts and lib/nft.
import assert from 'node:assert/strict'
import { inNamespaces, type Namespace, plugin, type Row, snapshot } from '../../support/harness.ts'
import { mappings, type Port, portNetwork, works } from '../../support/host-ports.ts'
import { noted, ports } from '../../support/journal.ts'
import { containerId, settled } from '../../support/network.ts'
import { calls, killing, type Tool } from '../../support/tool-shims.ts'

const PORTS: readonly Port[] = [
  { hostPort: 8080, containerPort: 80 },
  { hostPort: 5353, containerPort: 53, protocol: 'udp' },
]
const TOOLS: readonly Tool[] = ['ip', 'nft', 'conntrack']

interface Scene {
  readonly net: ReturnType<typeof portNetwork>
  readonly pod: Namespace
  readonly node: Namespace
  readonly given: { readonly prevResult: Row; readonly runtimeConfig: object }
}

/** What follows a call that was killed, and must come out right. */
const SEQUELS: Record<string, (scene: Scene) => Promise<void>> = {
  async 'DEL leaves nothing'({ net, pod }) {
    works(await net.call('DEL', pod))
  },
  async 'GC leaves nothing'({ net }) {
    works(
      await net.call('GC', undefined, { 'cni.dev/valid-attachments': [{ containerID: 'another', ifname: 'eth0' }] }),
    )
  },
  async 'ADD succeeds, CHECK agrees, and DEL leaves nothing'({ net, pod, node, given }) {
    works(await net.call('ADD', pod, given))
    works(await net.call('CHECK', pod, given))
    assert.equal((await mappings(node)).length, 4)
    works(await net.call('DEL', pod))
  },
  async 'another container gets the port as soon as there is a DEL, which then leaves it alone'({
    net,
    pod,
    node,
    given,
  }) {
    works(await net.call('DEL', pod))
    const other = { containerId: 'another' }
    works(await net.call('ADD', pod, { ...given, prevResult: { ips: [{ address: '10.1.0.77/24' }] } }, other))
    works(await net.call('DEL', pod))
    assert.deepEqual(await mappings(node), ['tcp . 8080 10.1.0.77 . 80', 'udp . 5353 10.1.0.77 . 53'])
    works(await net.call('DEL', pod, {}, other))
  },
}

describe('portmap: SIGKILL at every child process', () => {
  for (const command of ['ADD', 'DEL', 'GC']) {
    for (const [sequel, follow] of Object.entries(SEQUELS)) {
      it(
        `in ${command}, before and after each: ${sequel}`,
        inNamespaces(['node', 'pod'], async ({ node, pod }, test) => {
          test.timeout(120_000)
          await node.exec([
            'sh',
            '-c',
            'for one in iptables ip6tables; do echo 1 >/proc/sys/net/bridge/bridge-nf-call-$one; done',
          ])
          const net = portNetwork(node, { bridge: { cniVersion: '1.1.0' } })
          // What the network's pods share is there before.
          const prevResult = await net.add(pod, PORTS)
          works(await net.call('DEL', pod))
          const before = await settled(() => snapshot(node))
          const given = { prevResult, runtimeConfig: { portMappings: PORTS } }
          const scene = { net, pod, node, given }
          let seen = 0
          for (let at = 1, ended = false; !ended; at++) {
            for (const when of ['before', 'after'] as const) {
              if (command !== 'ADD') works(await net.call('ADD', pod, given))
              const tools = killing('portmap', at, when, TOOLS)
              const conf = {
                ...net.conf,
                ...(command === 'ADD' && given),
                ...(command === 'GC' && { 'cni.dev/valid-attachments': [{ containerID: 'another', ifname: 'eth0' }] }),
              }
              const { status, stdout } = await plugin(
                'portmap',
                {
                  command,
                  conf,
                  ...(command !== 'GC' && { containerId: containerId(pod), netns: pod }),
                  file: tools.file,
                },
                node,
              )
              assert.ok(status === 0 || status === 137 || status === -1, `${status}: ${stdout}`)
              ended = status === 0
              seen = Math.max(seen, calls(tools))
              await follow(scene)
              assert.equal(await snapshot(node), before, `killed ${when} child ${at}`)
              assert.deepEqual([ports(), noted('portmap')], [[], []], `killed ${when} child ${at}`)
            }
          }
          assert.ok(seen >= 2, `${command} was killed nowhere`)
        }),
      )
    }
  }
})
