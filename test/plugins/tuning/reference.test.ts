// lane: peers
// Tests plugins/tuning.ts.
import assert from 'node:assert/strict'
import { readdirSync, readFileSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { good } from '../../support/chained.ts'
import { inNamespaces, type Namespace, plugin, type Row } from '../../support/harness.ts'
import { noted } from '../../support/journal.ts'
import { containerId } from '../../support/network.ts'
import { skip } from '../../support/skip.ts'
import { looks, sysctl } from '../../support/tuning.ts'
import { hasPlugin, lanes, missing } from '../differential/lanes.ts'

const KEYS = {
  mac: '02:00:00:00:00:09',
  mtu: 1400,
  promisc: true,
  allmulti: true,
  sysctl: { 'net.ipv4.conf.IFNAME.arp_filter': '1', 'net.core.somaxconn': '512' },
}

afterEach(() => rmSync('/run/cni', { recursive: true, force: true }))

describe('tuning beside the reference', () => {
  const with_ = lanes().filter((lane) => hasPlugin(lane, 'tuning'))
  if (with_.length === 0)
    it('leaves the same', function () {
      skip(this, missing(false))
    })
  for (const { version, path } of with_) {
    const theirs = join(path, 'tuning')
    const conf = (pod: Namespace) => ({
      cniVersion: '1.0.0',
      name: 'net',
      type: 'tuning',
      ...KEYS,
      prevResult: { cniVersion: '1.0.0', interfaces: [{ name: 'eth0', mac: '02:00:00:00:00:01', sandbox: pod.path }] },
    })
    async function call(command: string, pod: Namespace, node: Namespace, file?: string): Promise<Row> {
      return good(
        await plugin(
          'tuning',
          { command, conf: conf(pod), containerId: containerId(pod), netns: pod, ...(file && { file }) },
          node,
        ),
      ).result
    }
    it(
      `makes the same link, the same sysctls, the same state file and the same result as ${version}; each one's DEL undoes the other's ADD`,
      inNamespaces(['node', 'a', 'b'], async ({ node, a, b }) => {
        for (const pod of [a, b])
          await pod.ip('link', 'add', 'eth0', 'address', '02:00:00:00:00:01', 'type', 'veth', 'peer', 'name', 'other')
        const was = await looks(a)
        const [one, two] = [await call('ADD', a, node, theirs), await call('ADD', b, node)]
        // Release 1.1.1 tells of an empty `dns`.
        const plain = ({ dns: _, ...result }: Row, pod: Namespace) =>
          JSON.parse(JSON.stringify(result).replaceAll(pod.path, 'POD'))
        assert.deepEqual(plain(two, b), plain(one, a))
        const all = async (pod: Namespace) => [
          await looks(pod),
          await sysctl(pod, 'ipv4/conf/eth0/arp_filter'),
          await sysctl(pod, 'core/somaxconn'),
          readFileSync(`/run/cni/tuning/${containerId(pod)}_eth0.json`, 'utf8'),
        ]
        assert.deepEqual(await all(b), await all(a))
        await call('DEL', a, node)
        await call('DEL', b, node, theirs)
        assert.deepEqual([await looks(a), await looks(b), readdirSync('/run/cni/tuning')], [was, was, []])
        // What the reference undid is forgotten too.
        await call('DEL', b, node)
        assert.deepEqual([await looks(b), noted('tuning')], [was, []])
      }),
    )
  }
})
