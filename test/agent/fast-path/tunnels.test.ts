// lane: vmlong
// Tests the fast path of a running agent with agent/parts/fast-path.ts and agent/backend/types.
import assert from 'node:assert/strict'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { execa } from 'execa'
import { add, everythingOn, onFastPath } from '../../support/fast-path.ts'
import { fileOf, inFastPath, talker, untilInFastPath } from '../../support/fast-path-world.ts'
import { until } from '../../support/harness.ts'
import { inCluster, type Node } from '../../support/nodes.ts'

/** The backends, and the device by which packets leave a node. */
const WAYS = [
  ['vxlan', 'flannel.1'],
  ['host-gw', 'eth0'],
  ['ipip', 'flannel.ipip'],
  ['wireguard', 'flannel-wg'],
  ['vxlan', 'flannel.1'],
] as const

describe('the fast path over the devices of backends', () => {
  before(() => execa('modprobe', ['br_netfilter']))

  it(
    'vxlan, host-gw, ipip, wireguard and vxlan again while the agents run: a connection goes on, takes the fast path of both nodes each time, and its packets leave by the device of the backend',
    inCluster(
      4,
      (one) => everythingOn(one, { Network: '10.244.0.0/16', Backend: { Type: 'vxlan' } }, 'bridge'),
      async ({ nodes, dir }, test) => {
        test.timeout(900_000)
        const [one, two, a, c] = nodes as [Node, Node, Node, Node]
        const agents = [one.agent(), two.agent()] as const
        for (const agent of agents) await agent.ready(120_000)
        const [ofA, ofC] = [await add(one, a), await add(two, c)]
        const [from, to] = [ofA.ips[0] as string, ofC.ips[0] as string]
        const sender = await talker(fileOf(a.ns), 'a')
        await talker(fileOf(c.ns), 'c')
        for (const agent of agents) await onFastPath(agent, { pods: 1, slowPods: 0 })
        await sender.open('flow', to, true)
        for (const [i, [type, device]] of WAYS.entries()) {
          if (i > 0) {
            const conf = { Network: '10.244.0.0/16', Backend: { Type: type } }
            writeFileSync(join(dir, 'store', 'config'), JSON.stringify(conf))
            for (const { pid } of agents) process.kill(pid, 'SIGHUP')
            await until(async () => (await one.ns.ip('route', 'get', to)).includes(` dev ${device} `), 60_000)
            await until(async () => (await two.ns.ip('route', 'get', from)).includes(` dev ${device} `), 60_000)
          }
          await until(async () => (await sender.say('flow'))[0] === '10', 60_000)
          for (const { ns } of [one, two]) await untilInFastPath(sender, 'flow', ns, from, to)
          const before = await sent(one, device)
          assert.deepEqual(await sender.say('flow', 10, 100), Array(100).fill('10'), type)
          assert.ok((await sent(one, device)) >= before + 100, `${type}: not by ${device}`)
          for (const { ns } of [one, two]) assert.equal((await inFastPath(ns, from, to)).length, 1, type)
        }
        for (const pod of [ofA, ofC]) assert.equal((await pod.del()).status, 0)
      },
    ),
  )
})

async function sent({ ns }: Node, device: string): Promise<number> {
  const [link] = JSON.parse(await ns.ip('-json', '-stats', 'link', 'show', 'dev', device))
  return link.stats64.tx.packets
}
