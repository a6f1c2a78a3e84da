// lane: netns
// Tests agent/node/log-format.ts: the lines of a running agent.
import assert from 'node:assert/strict'
import { until } from '../../support/harness.ts'
import { fileStore, inCluster, type Node } from '../../support/nodes.ts'

const NETWORK = { Network: '10.244.0.0/16', Backend: { Type: 'vxlan' } }
const lines = (text: string) => text.split('\n').filter(Boolean)

describe('plumb agent', () => {
  it(
    '--log-format=text writes time and level of each line as klog does, json their keys, and plain neither',
    inCluster(
      1,
      (cluster) => fileStore(cluster, NETWORK),
      async ({ nodes }) => {
        const [one] = nodes as [Node]
        const run = async (format: string) => {
          const began = Date.now()
          // Nobody can listen there, so one line is a warning.
          const agent = one.agent(`--log-format=${format}`, '--status-address=192.0.2.1:9')
          await agent.ready(30_000)
          await until(() => agent.log().includes('going on without, and trying again'), 10_000)
          await agent.stop()
          return { began, ended: Date.now(), said: lines(agent.log()) }
        }
        const text = await run('text')
        const header = /^([IWE])(\d\d)(\d\d) (\d\d):(\d\d):(\d\d)\.(\d{6}) +(\d+) ([a-z]+)\] \S/
        for (const line of text.said) assert.match(line, header)
        for (const line of text.said) {
          const [, , month, day, hour, minute, second] = header.exec(line) as unknown as string[]
          const at = new Date(
            new Date().getFullYear(),
            Number(month) - 1,
            Number(day),
            Number(hour),
            Number(minute),
            Number(second),
          ).getTime()
          assert.ok(at >= text.began - 1000 && at <= text.ended, line)
        }
        assert.match(text.said.join('\n'), /^I.* agent\] plumb \S+ node=n1 /m)
        assert.match(text.said.join('\n'), /^W.* agent\] .*going on without, and trying again$/m)
        const json = await run('json')
        const parsed = json.said.map(
          (line) => JSON.parse(line) as { ts: number; level: string; v: number; logger: string; msg: string },
        )
        for (const { ts, v, logger } of parsed)
          assert.ok(
            ts >= json.began - 1 && ts <= json.ended + 1 && v === 0 && logger === 'agent',
            JSON.stringify({ ts, v, logger }),
          )
        assert.ok(parsed.some(({ level, msg }) => level === 'info' && msg.startsWith('plumb ')))
        assert.ok(parsed.some(({ level, msg }) => level === 'warning' && msg.endsWith('trying again')))
        const plain = await run('plain')
        assert.match(plain.said[0] as string, /^agent: plumb /)
      },
    ),
  )

  it(
    'what ends the agent is an error, and a format that nobody knows is refused',
    inCluster(
      1,
      (cluster) => fileStore(cluster, { ...NETWORK, Backend: { Type: 'ipsec' } }),
      async ({ nodes }) => {
        const [one] = nodes as [Node]
        const agent = one.agent('--log-format=text')
        const ended = await Promise.race([agent.ended, until(() => /^[WE]/m.test(agent.log()), 10_000)])
        assert.match(agent.log(), /^[WE]\d{4} .* agent\] .*ipsec/m, String(ended))
        const wrong = one.agent('--log-format=xml')
        assert.notEqual(await wrong.ended, 0)
        assert.match(wrong.log(), /log-format.*xml/)
      },
    ),
  )
})
