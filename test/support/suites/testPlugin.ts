import assert from 'node:assert/strict'
import { execa } from 'execa'
import { testCrash } from '../../lib/verbs/crash/testCrash.ts'
import { type Call, inNamespaces, type Namespace, plugin, type Row, until } from '../harness.ts'
import { containerId, network, settled, traces } from '../network.ts'
import { type Subject, start, state } from './subject.ts'
import { testKill } from './testKill.ts'

const VERSIONS = ['0.1.0', '0.2.0', '0.3.0', '0.3.1', '0.4.0', '1.0.0', '1.1.0']
/** How DEL is told of the namespace. */
const WAYS = {
  'live namespace': (pod: Namespace) => ({ netns: pod }),
  'empty CNI_NETNS': () => ({ netns: '' }),
  'no CNI_NETNS': () => ({ netns: null }),
  async 'namespace gone'(pod: Namespace) {
    await execa('ip', ['netns', 'delete', containerId(pod)])
    return { netns: pod.path }
  },
}

/**
 * Defines the tests that every plugin has to pass. They call the protocol's verbs in all versions. Nothing of an
 * attachment outlives it, while a second attachment (`other`) of the network goes on working.
 */
export function testPlugin(subject: Subject): void {
  describe(`${subject.type}, as any plugin`, () => {
    testVersions(subject)
    testAdd(subject)
    testDel(subject)
    testGc(subject)
    testCrash(subject)
    // One that needs another before it has a walk of its own.
    if (!subject.network) testKill(subject)
  })
}

function testVersions(subject: Subject): void {
  for (const cniVersion of VERSIONS) {
    it(
      `speaks ${cniVersion}: ADD, CHECK, DEL, GC and STATUS as far as that version has them`,
      inNamespaces(['node', 'pod'], async ({ node, pod }) => {
        await subject.prepare?.(node)
        const net = (subject.network ?? network)(node, { ...subject.conf(), cniVersion })
        const result = await net.add(pod)
        assert.equal(result['cniVersion'], cniVersion)
        assert.deepEqual(misformed(result, cniVersion), [])
        await subject.works(pod, result, node, net.conf)
        for (const [command, first] of [
          ['CHECK', '0.4.0'],
          ['STATUS', '1.1.0'],
          ['GC', '1.1.0'],
        ] as const) {
          const conf = {
            ...net.conf,
            prevResult: result,
            'cni.dev/valid-attachments': [{ containerID: containerId(pod), ifname: 'eth0' }],
          }
          if (cniVersion >= first)
            assert.equal(
              (await plugin(subject.type, { command, conf, containerId: containerId(pod), netns: pod }, node)).stdout,
              '',
              command,
            )
          else assert.equal((await net.fails(command, pod, { conf })).code, 1, command)
        }
        await subject.works(pod, result, node, net.conf)
        await net.del(pod)
        assert.deepEqual(traces(pod, net.conf), [])
      }),
    )
  }

  it(
    'VERSION names all versions',
    inNamespaces(['node'], async ({ node }) => {
      const { status, result, stderr } = await plugin(
        subject.type,
        { command: 'VERSION', containerId: null, ifname: null, path: null, conf: '' },
        node,
      )
      assert.deepEqual(
        { status, result, stderr },
        { status: 0, result: { cniVersion: '1.1.0', supportedVersions: VERSIONS }, stderr: '' },
      )
    }),
  )
}

function testAdd(subject: Subject): void {
  it(
    `ADD twice: the second is ${subject.again}, and the first goes on working untouched`,
    inNamespaces(['node', 'pod', 'other'], async (all) => {
      const { net, node, pod } = await start(subject, all)
      const result = await net.add(pod)
      await subject.works(pod, result, node, net.conf)
      const before = await settled(() => state(node, pod, net.conf))
      if (subject.again === 'same') assert.deepEqual(await net.add(pod), result)
      else assert.match((await net.fails('ADD', pod)).msg, /already|duplicate/)
      await until(async () => assert.deepEqual(await state(node, pod, net.conf), before) === undefined)
      await subject.works(pod, result, node, net.conf)
      await net.check(pod, result)
    }),
  )

  it(
    'ADD with a configuration that it refuses changes nothing',
    inNamespaces(['node', 'pod', 'other'], async (all) => {
      const { net, pod, unchanged } = await start(subject, all)
      const error = await net.fails('ADD', pod, { conf: subject.refused(net.conf) })
      assert.equal(error.code, 7)
      assert.match(error.msg, /want/)
      await unchanged()
    }),
  )

  it(
    'DEL, then ADD again: works as the first time',
    inNamespaces(['node', 'pod', 'other'], async (all) => {
      const { net, node, pod, unchanged } = await start(subject, all)
      for (let round = 0; round < 3; round++) {
        await subject.works(pod, await net.add(pod), node, net.conf)
        await net.del(pod)
      }
      await unchanged()
    }),
  )
}

function testDel(subject: Subject): void {
  for (const [way, netnsOf] of Object.entries(WAYS)) {
    for (const previous of [true, false]) {
      it(
        `DEL with ${way}, ${previous ? 'with' : 'without'} prevResult, leaves nothing, and again succeeds`,
        inNamespaces(['node', 'pod', 'other'], async (all) => {
          const { net, pod, unchanged } = await start(subject, all)
          const result = await net.add(pod)
          const more: Partial<Call> = {
            ...(await netnsOf(pod)),
            ...(previous && { conf: { ...net.conf, prevResult: result } }),
          }
          await net.del(pod, more)
          await unchanged(way === 'namespace gone')
          await net.del(pod, more)
          await unchanged(way === 'namespace gone')
        }),
      )
    }
    it(
      `DEL with ${way} and a configuration that ADD refuses leaves nothing`,
      inNamespaces(['node', 'pod', 'other'], async (all) => {
        const { net, pod, unchanged } = await start(subject, all)
        await net.add(pod)
        await net.del(pod, { ...(await netnsOf(pod)), conf: subject.refused(net.conf) })
        await unchanged(way === 'namespace gone')
      }),
    )
  }

  it(
    'DEL of what was never added succeeds',
    inNamespaces(['node', 'pod', 'other'], async (all) => {
      const { net, pod, unchanged } = await start(subject, all)
      await net.del(pod)
      await net.del(pod, { conf: subject.refused(net.conf) })
      await unchanged()
    }),
  )

  // lo belongs to no attachment: each DEL of loopback switches it off, as upstream.
  if (subject.type === 'loopback') return
  it(
    'DEL of another container or of another network, in the namespace of a living attachment, leaves that attachment alone',
    inNamespaces(['node', 'pod', 'other'], async (all) => {
      const { net, node, pod } = await start(subject, all)
      const result = await net.add(pod)
      const before = await settled(() => state(node, pod, net.conf))
      for (const stranger of [{ containerId: 'stranger' }, { conf: { ...net.conf, name: 'strange' } }]) {
        const call = { command: 'DEL', conf: net.conf, containerId: containerId(pod), netns: pod, ...stranger }
        assert.equal((await plugin(subject.type, call, node)).status, 0)
        await until(async () => assert.deepEqual(await state(node, pod, net.conf), before) === undefined)
        await subject.works(pod, result, node, net.conf)
        await net.check(pod, result)
      }
      await net.del(pod)
    }),
  )
}

function testGc(subject: Subject): void {
  it(
    'GC with a list frees what is not on it, and nothing else',
    inNamespaces(['node', 'pod', 'other'], async (all) => {
      const { net, node, pod, other, result, unchanged } = await start(subject, all)
      const stale = await net.add(pod)
      await net.gc(pod, other)
      await subject.works(pod, stale, node, net.conf)
      await execa('ip', ['netns', 'delete', containerId(pod)])
      await net.gc(other)
      await unchanged(true)
      await subject.works(other, result, node, net.conf)
    }),
  )

  it(
    'GC without a list frees nothing',
    inNamespaces(['node', 'pod', 'other'], async (all) => {
      const { net, node, pod } = await start(subject, all)
      const result = await net.add(pod)
      const before = await settled(() => state(node, pod, net.conf))
      const { status } = await plugin(
        subject.type,
        { command: 'GC', conf: net.conf, containerId: null, ifname: null },
        node,
      )
      assert.equal(status, 0)
      await until(async () => assert.deepEqual(await state(node, pod, net.conf), before) === undefined)
      await subject.works(pod, result, node, net.conf)
    }),
  )
}

// CNI spec, "Success" of each version: which keys a result has.
function misformed(result: Row, version: string): string[] {
  const allowed = version < '0.3.0' ? ['ip4', 'ip6', 'dns'] : ['interfaces', 'ips', 'routes', 'dns']
  const { cniVersion: _, ...rest } = result
  const address = (rest['ips'] ?? []).flatMap((ip: Row) =>
    'version' in ip === version < '1.0.0' ? [] : 'version of an address',
  )
  const details = (rest['interfaces'] ?? []).flatMap((one: Row) => (version < '1.1.0' && 'mtu' in one ? 'mtu' : []))
  return [...Object.keys(rest).filter((key) => !allowed.includes(key)), ...address, ...details]
}
