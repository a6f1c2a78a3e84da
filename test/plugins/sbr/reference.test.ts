// lane: peers
// Tests plugins/sbr.ts.
import assert from 'node:assert/strict'
import { rmSync } from 'node:fs'
import { join } from 'node:path'
import { good } from '../../support/chained.ts'
import { inNamespaces, type Namespace, plugin, type Row } from '../../support/harness.ts'
import { containerId } from '../../support/network.ts'
import { skip } from '../../support/skip.ts'
import { hasPlugin, lanes, missing } from '../differential/lanes.ts'

afterEach(() => rmSync('/run/cni', { recursive: true, force: true }))

describe('sbr beside the reference', () => {
  const with_ = lanes().filter((lane) => hasPlugin(lane, 'sbr'))
  if (with_.length === 0)
    it('makes the same rules and routes', function () {
      skip(this, missing(false))
    })
  const cases: Record<string, { readonly keys?: object; readonly ips: readonly object[]; readonly script: string }> = {
    'an address with a gateway': { ips: [{ address: '10.1.0.2/24', gateway: '10.1.0.1', interface: 0 }], script: ':' },
    'a default route and one with a metric and an MTU': {
      ips: [{ address: '10.1.0.2/24', gateway: '10.1.0.1' }],
      script: 'ip route add default via 10.1.0.1; ip route add 10.9.0.0/16 via 10.1.0.7 metric 7 mtu 1400',
    },
    'an address without a gateway': {
      ips: [{ address: '10.1.0.2/24' }],
      script: 'ip route add 10.9.0.0/16 via 10.1.0.7',
    },
    'a table': {
      keys: { table: 4242 },
      ips: [{ address: '10.1.0.2/24', gateway: '10.1.0.1' }],
      script: 'ip route add default via 10.1.0.1',
    },
  }
  for (const { version, path, newer } of with_)
    for (const [what, { keys = {}, ips, script }] of Object.entries(cases)) {
      // A key that came later.
      if ('table' in keys && !newer) continue
      it(
        `${what}: the same rules, tables and result as ${version}, and no rule is left`,
        inNamespaces(['node', 'a', 'b'], async ({ node, a, b }) => {
          const seen: unknown[] = []
          for (const [pod, file] of [
            [a, join(path, 'sbr')],
            [b, undefined],
          ] as const) {
            await pod.exec([
              'sh',
              '-ec',
              `ip link add eth0 type veth peer name other; ip link set other up; ip link set eth0 up; ip addr add 10.1.0.2/24 dev eth0; ${script}`,
            ])
            const conf = {
              cniVersion: '1.0.0',
              name: 'net',
              type: 'sbr',
              ...keys,
              prevResult: { cniVersion: '1.0.0', interfaces: [{ name: 'eth0', sandbox: '/x' }], ips },
            }
            const call = async (command: string) =>
              good(
                await plugin(
                  'sbr',
                  { command, conf, containerId: containerId(pod), netns: pod, ...(file && { file }) },
                  node,
                ),
              ).result
            // Release 1.1.1 tells of an empty `dns`.
            const { dns: _, ...result } = await call('ADD')
            const made = [await rules(pod), await routes(pod)]
            await call('DEL')
            seen.push({ result, made, left: await rules(pod) })
          }
          assert.deepEqual(seen[1], seen[0])
        }),
      )
    }
})

async function rules(pod: Namespace): Promise<Row[]> {
  return pod.json('-4', 'rule')
}

// Who made a route is no matter to a packet.
async function routes(pod: Namespace): Promise<Row[]> {
  const all = await pod.json('-4', 'route', 'show', 'table', 'all')
  return all.filter(({ type }) => type === 'unicast').map(({ protocol: _, ...row }) => row)
}
