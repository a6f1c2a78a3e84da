// Tests lib/journal.
import assert from 'node:assert/strict'
import { readdirSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { inNamespaces, type Namespace } from '../support/harness.ts'
import { entries, JOURNAL } from '../support/journal.ts'
import { bridgeConf, containerId, network, traces } from '../support/network.ts'

const PLUMB = join(import.meta.dir, '../../dist/plumb')
const SHARED = `${JOURNAL}/shared`
const CONF = { isDefaultGateway: true, ipMasq: true, firewall: {}, portmap: {}, runtimeConfig: { portMappings: [{ hostPort: 8080, containerPort: 80 }] } }

describe('the journal', () => {
  it(
    'has one entry per attachment, complete when ADD has answered, with its addresses and what each plugin made; it goes with DEL',
    inNamespaces(['node', 'pod', 'other'], async ({ node, pod, other }) => {
      const net = network(node, bridgeConf(CONF))
      await net.add(pod)
      await network(node, { ...net.conf, runtimeConfig: {} }).add(other)
      const [one, two] = entries().sort((a, b) => a.owner.containerId.localeCompare(b.owner.containerId))
      assert.deepEqual([one?.owner, one?.unfinished, one?.ips], [{ network: net.conf.name, containerId: containerId(other), ifname: 'eth0' }, undefined, ['10.1.0.3']])
      assert.deepEqual([Object.keys(two?.parts ?? {}).sort(), two?.ips], [['firewall', 'link', 'masquerade', 'portmap'], ['10.1.0.2']])
      assert.deepEqual(Object.keys(one?.parts ?? {}).sort(), ['firewall', 'link', 'masquerade'])
      for (const one of [pod, other]) await net.del(one)
      assert.deepEqual([entries(), traces(pod, net.conf)], [[], []])
    }),
  )

  it(
    'the index is built again out of the entries, as it was, by `plumb cni gc`; notes of attachments without an entry go',
    inNamespaces(['node', 'pod', 'other'], async ({ node, pod, other }) => {
      const net = network(node, bridgeConf(CONF))
      await net.add(pod)
      await network(node, { ...net.conf, runtimeConfig: {} }).add(other)
      const before = shared()
      assert.match(before.join(), /addresses.*elements.*ports/)
      rmSync(SHARED, { recursive: true })
      await gc(node)
      assert.deepEqual(shared(), before)
      rmSync(`${JOURNAL}/attachments/${net.conf.name}:${containerId(pod)}:eth0`)
      await gc(node)
      assert.deepEqual(
        shared().filter((path) => path.includes(containerId(pod))),
        [],
      )
      assert.deepEqual(
        shared().filter((path) => path.includes(containerId(other))),
        before.filter((path) => path.includes(containerId(other))),
      )
    }),
  )
})

function shared(): string[] {
  return readdirSync(SHARED, { recursive: true }).map(String).sort()
}

async function gc(node: Namespace): Promise<void> {
  const { status, stdout, stderr } = await node.exec([PLUMB, 'cni', 'gc'])
  assert.equal(status, 0, `${stdout}${stderr}`)
}
