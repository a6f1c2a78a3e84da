// lane: netns
// Tests lib/verbs, called as kubelet calls.
import assert from 'node:assert/strict'
import { existsSync, mkdtempSync, readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { inNamespaces, type Namespace, ping, plugin, type Row, until } from '../../support/harness.ts'
import { mappings } from '../../support/host-ports.ts'
import { containerId, traces } from '../../support/network.ts'
import { sourceSeen, WORLD, wireWorld } from '../../support/packets.ts'
import { addresses } from '../../support/pool.ts'
import { reach, serve } from '../../support/servers.ts'

const CONF = join(import.meta.dir, '../../../conf/kubelet-1.20')
/**
 * The kubelet's own list for every pod's lo (pkg/kubelet/dockershim/network/cni, getLoNetwork), whatever lies in its
 * folder.
 */
const LOOPBACK = { cniVersion: '0.2.0', name: 'cni-loopback', type: 'loopback' }

describe('conf/kubelet-1.20, as a kubelet with --network-plugin=cni calls it', () => {
  it(
    'sets pods up and tears them down: lo first, then the first network of the folder, each plugin by file, /proc/PID/ns/net, K8S_ arguments and host ports',
    inNamespaces(['node', 'pod', 'other', 'world'], async ({ node, pod, other, world }) => {
      await wireWorld(node, world)
      const [one, two] = [await sandbox(node, pod, 8080), await sandbox(node, other, 8081)]
      try {
        const [first, second] = [await one.setUp(), await two.setUp()]
        assert.deepEqual(
          [addresses(first), addresses(second)],
          [
            ['10.244.1.2', 'fd00:244:1::2'],
            ['10.244.1.3', 'fd00:244:1::3'],
          ],
        )
        // The pod's address is the first (the result's, as the kubelet of that time reads it).
        assert.equal(first['ips'][0].version, '4')
        for (const address of [...addresses(second), '10.244.1.1', 'fd00:244:1::1', '127.0.0.1', '::1'])
          assert.ok(await until(() => ping(pod, address)), address)
        assert.equal(await sourceSeen(pod, world, WORLD.world4), WORLD.node4)
        await serve(pod, 'web', 'tcp 80')
        assert.equal(await reach(world, WORLD.node4, 8080), `web ${WORLD.world4}`)
        assert.equal(await reach(world, WORLD.node6, 8080), `web ${WORLD.world6}`)
        // By its own host port, too: hairpinMode.
        assert.match(await reach(pod, WORLD.node4, 8080), /^web /)
        await one.tearDown()
        assert.ok(await ping(node, '10.244.1.3'))
        assert.deepEqual([await links(pod), traces(pod, one.conf)], [['lo'], []])
        // A pod that died: the path of its namespace is gone with its process. And the kubelet calls again.
        two.kill()
        await until(() => !existsSync(two.netns))
        for (let i = 0; i < 2; i++) await two.tearDown()
        assert.deepEqual(
          [
            await mappings(node),
            reserved(),
            await links(other),
            (await links(node)).filter((name) => name.startsWith('veth')),
          ],
          [[], [], ['lo'], []],
        )
      } finally {
        for (const box of [one, two]) box.kill()
      }
    }),
  )

  it("the folder has the pods' network first in lexical order, and versions that this kubelet takes", () => {
    const files = readdirSync(CONF).sort()
    assert.deepEqual(files, ['10-pods.conflist', '99-loopback.conf'])
    for (const file of files) assert.ok(JSON.parse(readFileSync(join(CONF, file), 'utf8')).cniVersion <= '0.4.0', file)
  })
})

/** An infra container in a namespace, and what a kubelet does for it. */
async function sandbox(node: Namespace, pod: Namespace, hostPort: number) {
  const dir = mkdtempSync('/run/pause-')
  void pod.exec(['sh', '-c', `echo $$ >${dir}/pid && exec sleep 60`])
  const pid = Number(await until(() => existsSync(`${dir}/pid`) && readFileSync(`${dir}/pid`, 'utf8').trim()))
  const netns = `/proc/${pid}/ns/net`
  const id = containerId(pod)
  const { name, cniVersion, plugins } = JSON.parse(readFileSync(join(CONF, '10-pods.conflist'), 'utf8'))
  const args = `IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=web;K8S_POD_INFRA_CONTAINER_ID=${id}`
  async function call(command: string, conf: Row): Promise<Row> {
    const { status, stdout, stderr, result } = await plugin(
      conf['type'],
      { command, conf, containerId: id, netns, args },
      node,
    )
    assert.deepEqual([status, stderr], [0, ''], `${command} of ${conf['type']}: ${stdout}`)
    return result
  }
  // Of the kubelet's capabilities (portMappings, bandwidth, ipRanges, dns) a plugin gets those that it declares.
  const request = ({ capabilities, ...plugin }: Row, prevResult: Row | undefined): Row => ({
    ...plugin,
    name,
    cniVersion,
    ...(capabilities?.portMappings && {
      runtimeConfig: { portMappings: [{ hostPort, containerPort: 80, protocol: 'tcp', hostIP: '' }] },
    }),
    ...(prevResult && { prevResult }),
  })
  let result: Row | undefined
  let running = true
  return {
    netns,
    conf: { name, cniVersion },
    async setUp(): Promise<Row> {
      await call('ADD', LOOPBACK)
      for (const plugin of plugins) result = await call('ADD', request(plugin, result))
      return result as Row
    },
    async tearDown(): Promise<void> {
      for (const plugin of plugins.toReversed()) await call('DEL', request(plugin, result))
      await call('DEL', LOOPBACK)
    },
    kill(): void {
      if (running) process.kill(pid)
      running = false
    },
  }
}

async function links(ns: Namespace): Promise<string[]> {
  return (await ns.json('link')).map(({ ifname }) => ifname)
}

function reserved(): string[] {
  return readdirSync('/var/lib/cni/networks/pods').filter((file) => /^[\da-f.:]+$/.test(file))
}
