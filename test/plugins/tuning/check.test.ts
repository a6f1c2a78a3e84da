// lane: netns
// Tests plugins/tuning.ts.
import assert from 'node:assert/strict'
import { readdirSync, readFileSync, rmSync } from 'node:fs'
import { execa } from 'execa'
import { chain, good } from '../../support/chained.ts'
import { inNamespaces, until } from '../../support/harness.ts'
import { watched } from '../../support/host-ports.ts'
import { entries, noted, rewrite } from '../../support/journal.ts'
import { containerId, network } from '../../support/network.ts'
import { ALL, MAC, mtuOf } from '../../support/tuning.ts'

afterEach(() => rmSync('/run/cni', { recursive: true, force: true }))

describe('tuning: CHECK', () => {
  const faults: Record<string, { readonly break: string; readonly says: string }> = {
    'the mac': {
      break: 'ip link set eth0 address 02:00:00:00:00:0a',
      says: `link eth0 in the pod has mac 02:00:00:00:00:0a, want ${MAC}`,
    },
    'the mtu': { break: 'ip link set eth0 mtu 1300', says: 'link eth0 in the pod has mtu 1300, want 1400' },
    promisc: { break: 'ip link set eth0 promisc off', says: 'link eth0 in the pod has promisc off, want true' },
    allmulti: { break: 'ip link set eth0 allmulticast off', says: 'link eth0 in the pod has allmulti off, want true' },
    txQLen: { break: 'ip link set eth0 txqueuelen 3', says: 'link eth0 in the pod has txQLen 3, want 77' },
    'a sysctl': {
      break: 'echo 5 >/proc/sys/net/core/somaxconn',
      says: 'sysctl net/core/somaxconn in the pod has value 5, want 9',
    },
  }
  it(
    `names each attribute that is otherwise: ${Object.keys(faults).join(', ')}; another ADD puts it right`,
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      const net = chain(node, { type: 'tuning', ...ALL, mac: MAC.toUpperCase(), sysctl: { 'net.core.somaxconn': '9' } })
      const prevResult = await net.add(pod)
      // The mac is compared as an address, however it is written.
      good(await net.call('CHECK', pod, { prevResult }))
      const was = readFileSync(`/run/cni/tuning/${containerId(pod)}_eth0.json`, 'utf8')
      for (const [what, fault] of Object.entries(faults)) {
        assert.equal((await pod.exec(['sh', '-ec', fault.break])).status, 0, what)
        assert.equal((await net.call('CHECK', pod, { prevResult })).error.details, fault.says)
        good(await net.call('ADD', pod, { prevResult }))
        good(await net.call('CHECK', pod, { prevResult }))
      }
      // What was there first is still known.
      assert.equal(readFileSync(`/run/cni/tuning/${containerId(pod)}_eth0.json`, 'utf8'), was)
      const [outer] = await node.json('link', 'show', 'type', 'veth')
      await node.ip('link', 'set', outer?.['ifname'], 'mtu', '1300')
      assert.match(
        (await net.call('CHECK', pod, { prevResult })).error.details,
        /^link veth\w+ has mtu 1300, want 1400$/,
      )
    }),
  )

  it(
    'says nothing of what is not asked for: a link that somebody else made promiscuous',
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      const net = chain(node, { type: 'tuning', mtu: 1400 })
      const prevResult = await net.add(pod)
      await pod.ip('link', 'set', 'eth0', 'promisc', 'on', 'allmulticast', 'on', 'txqueuelen', '5')
      good(await net.call('CHECK', pod, { prevResult }))
    }),
  )
})

describe('tuning: DEL', () => {
  for (const way of ['named', 'not named', 'gone'] as const)
    it(
      `with the namespace ${way}: the state file goes, and a second DEL starts no tool`,
      inNamespaces(['node', 'pod'], async ({ node, pod }) => {
        const net = chain(node, { type: 'tuning', mtu: 1400 })
        await net.add(pod)
        if (way === 'gone') await execa('ip', ['netns', 'delete', containerId(pod)])
        good(await net.call('DEL', pod, {}, way === 'not named' ? { netns: '' } : {}))
        assert.deepEqual([readdirSync('/run/cni/tuning'), noted('tuning')], [[], []])
        if (way !== 'gone') assert.equal(await mtuOf(pod, 'eth0'), 1500)
        const { answer, tools } = await watched(node, 'tuning', {
          command: 'DEL',
          conf: net.conf,
          containerId: containerId(pod),
          netns: way === 'not named' ? '' : pod,
        })
        assert.deepEqual([answer.status, tools], [0, []])
      }),
    )

  it(
    'knows a pod by more than the number of its namespace, which the kernel gives to another once that has gone',
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      const net = chain(node, { type: 'tuning', mtu: 1400 })
      await net.add(pod)
      const cookie = entries()[0]?.parts['tuning']?.cookie ?? ''
      assert.match(cookie, /^[1-9]\d*$/)
      rewrite(containerId(pod), (entry) => ({
        ...entry,
        parts: { ...entry.parts, tuning: { own: [], ...entry.parts['tuning'], cookie: `${BigInt(cookie) + 1n}` } },
      }))
      good(await net.call('DEL', pod))
      assert.equal(await mtuOf(pod, 'eth0'), 1400)
    }),
  )

  it(
    'starts no tool when the link has gone, and touches no other pod that has come to the same path',
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      const net = chain(node, { type: 'tuning', mtu: 1400 })
      const call = { command: 'DEL', conf: net.conf, containerId: containerId(pod), netns: pod }
      await net.add(pod)
      await pod.ip('link', 'delete', 'eth0')
      assert.deepEqual((await watched(node, 'tuning', call)).tools, [])
      await network(node, net.bridge).del(pod)
      await net.add(pod)
      await execa('ip', ['netns', 'delete', containerId(pod)])
      // The kernel takes the pair apart a little later.
      await until(async () => (await node.ip('-o', 'link', 'show', 'type', 'veth')) === '')
      await execa('ip', ['netns', 'add', containerId(pod)])
      await pod.ip('link', 'add', 'eth0', 'mtu', '1234', 'type', 'veth', 'peer', 'name', 'other')
      const { answer, tools } = await watched(node, 'tuning', { ...call, netns: '' })
      assert.deepEqual([good(answer).status, tools, await mtuOf(pod, 'eth0')], [0, [], 1234])
    }),
  )
})
