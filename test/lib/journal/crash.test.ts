// lane: long
// Tests lib/verbs and lib/journal, killed at every step.
import assert from 'node:assert/strict'
import { leftOf, unfinished } from '../../support/attachment-leftovers.ts'
import { inNamespaces, type Namespace, ping, plugin, type Row, until } from '../../support/harness.ts'
import { bridgeConf, type Conf, containerId, type Network, network } from '../../support/network.ts'
import { calls, killing } from '../../support/tool-shims.ts'

type Nodes = Record<'node' | 'pod' | 'other', Namespace>
/** The call that is killed: what has to be there before, and what its configuration has besides. */
interface Victim {
  readonly command: 'ADD' | 'CHECK' | 'DEL' | 'GC'
  readonly type: 'bridge'
  /** Another pod of the network is there: the node has its bridge and its rules. */
  readonly busy?: true
}

const VICTIMS: readonly Victim[] = [
  { command: 'ADD', type: 'bridge' },
  { command: 'ADD', type: 'bridge', busy: true },
  { command: 'CHECK', type: 'bridge' },
  { command: 'DEL', type: 'bridge' },
  { command: 'DEL', type: 'bridge', busy: true },
  { command: 'GC', type: 'bridge' },
  { command: 'GC', type: 'bridge', busy: true },
]
/** What follows, and must come out right. */
const SEQUELS = {
  async 'DEL leaves nothing'({ net, pod }: Scene) {
    await net.del(pod)
  },
  async 'DEL of a pod that is gone leaves nothing'({ net, pod }: Scene) {
    await net.del(pod, { netns: '' })
  },
  async 'GC leaves nothing'({ net, busy, other }: Scene) {
    await net.gc(...(busy ? [other] : []))
  },
  async 'ADD succeeds and the pod works; then DEL leaves nothing'({ net, pod, node, intact }: Scene) {
    const answer = await plugin(
      net.conf['type'] as string,
      { command: 'ADD', conf: net.conf, containerId: containerId(pod), netns: pod },
      node,
    )
    // It was there all the time, and whole.
    if (intact) assert.match(answer.error.msg, /duplicate|already/)
    else assert.equal(answer.status, 0, answer.stdout)
    await works(pod)
    await net.del(pod)
  },
} satisfies Record<string, (scene: Scene) => Promise<void>>

interface Scene extends Nodes, Omit<Victim, 'command' | 'type'> {
  readonly net: Network
  /** A second ADD has to be refused. */
  intact?: boolean
}

describe('SIGKILL of plumb at every child process', () => {
  for (const victim of VICTIMS) {
    const { command, type, busy } = victim
    for (const [sequel, follow] of Object.entries(SEQUELS)) {
      it(`in ${command} of ${type}${busy ? ', beside another pod' : ''}, before and after each: ${sequel}`, async function () {
        this.timeout(200_000)
        const seen: number[] = []
        for (let at = 1, ended = false; !ended; at++) {
          for (const when of ['before', 'after'] as const) {
            await inNamespaces(['node', 'pod', 'other'], async (nodes) => {
              const scene = await prepare(victim, nodes)
              const done = await kill(victim, scene, at, when)
              ended = done.ended
              seen.push(done.calls)
              scene.intact = await isIntact(victim, scene, ended)
              const what = `killed ${when} child ${at}${ended ? ', which there is none of' : ''}`
              await follow(scene).catch((cause: Error) => assert.fail(`${what}: ${cause.message}`))
              await until(async () => assert.deepEqual(await left(scene), []) === undefined, 1000).catch(
                (cause: Error) => assert.fail(`${what}: ${cause.message}`),
              )
              if (busy) await works(scene.other)
            }).call(this)
          }
        }
        assert.ok(Math.max(...seen) >= 1, `${command} was killed nowhere: ${seen}`)
      })
    }
  }
})

async function prepare(victim: Victim, nodes: Nodes): Promise<Scene> {
  const { command, busy } = victim
  const keys = { isDefaultGateway: true, ipMasq: true, macspoofchk: true }
  const conf: Conf = bridgeConf(keys, '10.1.0.0/24', 'fd00:1::/64')
  const net = network(nodes.node, conf)
  if (busy) await net.add(nodes.other)
  const result: Row = command === 'ADD' ? {} : await net.add(nodes.pod)
  return { ...nodes, ...victim, net: { ...net, conf: command === 'CHECK' ? { ...conf, prevResult: result } : conf } }
}

async function kill(
  { command, type, busy }: Victim,
  { net, node, pod, other }: Scene,
  at: number,
  when: 'before' | 'after',
): Promise<{ ended: boolean; calls: number }> {
  const valid = busy ? [{ containerID: containerId(other), ifname: 'eth0' }] : []
  const conf = command === 'GC' ? { ...net.conf, 'cni.dev/valid-attachments': valid } : net.conf
  const tools = killing(type, at, when)
  const { status, stdout } = await plugin(
    type,
    { command, conf, ...(command !== 'GC' && { containerId: containerId(pod), netns: pod }), file: tools.file },
    node,
  )
  assert.ok(
    status === 0 || status === 137 || status === -1,
    `${command} was to be killed, and ended with status ${status}: ${stdout}`,
  )
  return { ended: status === 0, calls: calls(tools) }
}

/**
 * Whether the kill came when nothing of a whole attachment had been touched. That holds for a CHECK, for an ADD that
 * came to its end, and for a GC that was still looking.
 */
async function isIntact({ command }: Victim, { pod }: Scene, ended: boolean): Promise<boolean> {
  if (command === 'DEL') return false
  if (command !== 'GC') return command === 'CHECK' || ended
  return (await pod.json('link')).length > 1 && unfinished(pod).length === 0
}

function left({ net, node, pod, other, busy }: Scene): Promise<string[]> {
  return leftOf(net.conf, node, pod, busy ? other : undefined)
}

async function works(pod: Namespace): Promise<void> {
  for (const address of ['10.1.0.1', 'fd00:1::1']) await until(() => ping(pod, address))
}
