// lane: long
// Tests lib/verbs/orphans.ts.
import assert from 'node:assert/strict'
import { existsSync } from 'node:fs'
import { type Answer, type Call, inNamespaces, type Namespace, plugin, snapshot, until } from '../../support/harness.ts'
import { portNetwork, works } from '../../support/host-ports.ts'
import { bridgeConf, containerId, settled } from '../../support/network.ts'
import { type Any, shimmed } from '../../support/tool-shims.ts'

const TOOLS: readonly Any[] = ['ip', 'nft', 'tc', 'conntrack']
// plumb is gone before the tool has done anything, and the tool takes its time.
const orphan = (nth: number) => `
[ $n = ${nth} ] || exec "$real" "$@" < "$input"
kill -KILL $PPID
sleep 0.5
"$real" "$@" < "$input"
touch "$dir/ended"`

interface Scene {
  readonly type: string
  /** A call for the pod, as a runtime makes it. */
  call(command: string, more?: Partial<Call>, keys?: object): Promise<Answer>
}

/**
 * A call that is killed when the nth of its tools has its input and has not begun: a wait for that tool's end;
 * undefined when it has fewer.
 */
async function killed(
  nth: number,
  command: string,
  { type, call }: Scene,
): Promise<(() => Promise<unknown>) | undefined> {
  const { file, dir } = shimmed(type, Object.fromEntries(TOOLS.map((tool) => [tool, orphan(nth)])))
  const { status, stdout } = await call(command, { file })
  assert.ok(status === 0 || status === 137 || status === -1, `${status}: ${stdout}`)
  return status === 0 ? undefined : () => until(() => existsSync(`${dir}/ended`))
}

async function scene(type: string, node: Namespace, pod: Namespace): Promise<Scene> {
  await node.exec(['sh', '-c', 'echo 0 >/proc/sys/net/ipv6/conf/default/accept_dad'])
  const of = (conf: object): Scene['call'] => {
    return (command, more, keys) => {
      const isGc = command === 'GC'
      const given = isGc ? { 'cni.dev/valid-attachments': [{ containerID: 'another', ifname: 'eth0' }] } : keys
      return plugin(
        type.replace('fused ', ''),
        {
          command,
          conf: { ...conf, ...given },
          ...(isGc ? {} : { containerId: containerId(pod), netns: pod }),
          ...more,
        },
        node,
      )
    }
  }
  if (type === 'fused bridge')
    return {
      type: 'bridge',
      call: of({
        ...bridgeConf({ cniVersion: '1.1.0', isGateway: true }, '10.1.0.0/24'),
        bandwidth: { ingressRate: 1e7, ingressBurst: 1e6, egressRate: 1e7, egressBurst: 1e6 },
      }),
    }
  if (type === 'bridge')
    return {
      type,
      call: of(bridgeConf({ cniVersion: '1.1.0', isGateway: true, ipMasq: true }, '10.1.0.0/24', 'fd00:1::/64')),
    }
  const net = portNetwork(node, { bridge: { cniVersion: '1.1.0' } })
  const ports = [
    { hostPort: 8080, containerPort: 80 },
    { hostPort: 5353, containerPort: 53, protocol: 'udp' },
  ]
  const prevResult = await net.add(pod, ports)
  return { type, call: of({ ...net.conf, prevResult, runtimeConfig: { portMappings: ports } }) }
}

describe('a tool that outlives its plugin, which was killed', () => {
  for (const type of ['bridge', 'fused bridge', 'portmap'])
    for (const command of ['ADD', 'DEL'])
      for (const follow of [['DEL'], ['GC'], ['ADD', 'CHECK', 'DEL']])
        it(
          `${type} ${command}, at each of its tools: ${follow.join(', ')} right after it waits for that tool, and nothing is left`,
          inNamespaces(['node', 'pod'], async ({ node, pod }, test) => {
            test.timeout(60_000)
            const one = await scene(type, node, pod)
            // What the network's pods share is there before.
            for (const before of ['ADD', 'DEL']) works(await one.call(before))
            const before = await settled(() => snapshot(node))
            for (let nth = 1; ; nth++) {
              if (command === 'DEL') works(await one.call('ADD'))
              const ended = await killed(nth, command, one)
              let keys = {}
              // The last time it came to its end.
              for (const then of ended ? follow : follow.slice(-1)) {
                // What ADD has made is still there after the tool.
                if (then === 'CHECK') await ended?.()
                const { result } = works(await one.call(then, {}, then === 'CHECK' ? keys : {}))
                if (then === 'ADD') keys = { prevResult: result }
              }
              await ended?.()
              assert.equal(await settled(() => snapshot(node)), before, `${nth}`)
              if (ended) continue
              assert.ok(nth > 1, 'it was killed nowhere')
              break
            }
          }),
        )
})
