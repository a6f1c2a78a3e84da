// lane: netns
// Tests lib/verbs: what an ADD leaves when a step fails.
import assert from 'node:assert/strict'
import { inNamespaces, type Namespace, until } from '../../support/harness.ts'
import { portNetwork } from '../../support/host-ports.ts'
import { makeNewer } from '../../support/newer-nft.ts'

/** Tables of other programs that the node's nft cannot read, or may not touch. */
const TABLES: Readonly<Record<string, (node: Namespace) => Promise<() => Promise<void>>>> = {
  'of iptables-nft with matches that nft has no words for': async (node) => {
    const rules = [
      '-t nat -A POSTROUTING -m statistic --mode nth --every 3 -m comment --comment x -j RETURN',
      '-A FORWARD -m string --string abc --algo bm -j ACCEPT',
      '-A INPUT -m time --timestart 01:00 -m hashlimit --hashlimit-above 9/sec --hashlimit-name h -j DROP',
    ]
    let made = 0
    for (const rule of rules) if ((await node.exec(['iptables-nft', ...rule.split(' ')])).status === 0) made++
    assert.ok(made > 0, 'iptables-nft made no rule')
    return async () => {}
  },
  'with a set of a newer kind': async (node) => {
    makeNewer(node)
    return async () => {}
  },
  'that its owner alone may touch': async (node) => {
    const child = Bun.spawn(['nsenter', `--net=${node.path}`, '--', 'nft', '-i'], {
      stdin: 'pipe',
      stdout: 'ignore',
      stderr: 'ignore',
    })
    child.stdin.write('add table inet owned { flags owner; }\nadd set inet owned s { type ipv4_addr; }\n')
    await child.stdin.flush()
    await until(async () => (await node.exec(['nft', 'list', 'tables'])).stdout.includes('owned'))
    return async () => {
      child.kill()
      await child.exited
    }
  },
}

describe('nft tables of other programs', () => {
  for (const [what, make] of Object.entries(TABLES))
    it(
      `${what}: bridge with ipMasq and portmap work beside them, on a node without plumb's rules and on one with them; DEL leaves nothing`,
      inNamespaces(['node', 'pod', 'other'], async ({ node, pod, other }) => {
        const end = await make(node)
        try {
          const net = portNetwork(node, { bridge: { ipMasq: true } })
          for (const [i, one] of [pod, other].entries()) {
            await net.add(one, [{ hostPort: 8080 + i, containerPort: 80 }])
            assert.ok(
              await until(async () =>
                (await node.exec(['nft', 'list', 'map', 'inet', 'plumb', 'ports4'])).stdout.includes(
                  `tcp . ${8080 + i}`,
                ),
              ),
            )
          }
          for (const one of [pod, other]) await net.del(one)
        } finally {
          await end()
        }
      }),
    )
})
