// lane: netns
// Tests lib/verbs and lib/journal, killed at every step.
import assert from 'node:assert/strict'
import { chmodSync, existsSync, mkdtempSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { endingOf, listenerOf } from '../../../lib/os/link-removal.ts'
import { inside } from '../../../lib/os/netns.ts'
import type { NetnsPath } from '../../../lib/text/values.ts'
import { type Answer, type Call, inNamespaces, type Namespace, plugin, until } from '../../support/harness.ts'
import { works } from '../../support/host-ports.ts'
import { bridgeConf, containerId } from '../../support/network.ts'
import { STRACE } from '../../support/recording.ts'
import { shimmed } from '../../support/tool-shims.ts'

const DIST = join(import.meta.dir, '../../../dist')
const [IP, NFT] = [
  ['ip', '-batch', '-'],
  ['nft', '-f', '-'],
]
/** The tool at work: no process of this test. */
const pid = process.pid
const GROUPED = 'link set dev v1 group 7\nlink set dev v2 group 7\nlink delete group 7\n'

// Scripts for `ip`. What deletes no link works as usual. `WAIT` lasts until the test lets it go on, at most 20 s.
const OTHERWISE = 'grep -q "link delete" "$input" || exec "$real" "$@" <"$input"'
const WORK = '"$real" "$@" <"$input"'
const WAIT = `timeout 20 sh -c 'until [ -e "$0/release" ]; do sleep 0.02; done' "$dir"`
const END = 'touch "$dir/ended"'
const HELD = [OTHERWISE, WORK, WAIT, END].join('\n')

describe('work that is done before its tool has ended', () => {
  for (const type of ['bridge', 'macvlan', 'ptp'])
    it(
      `DEL of ${type} answers while its ip still runs, and what comes next for the attachment waits for that ip`,
      inNamespaces(['node', 'pod'], async ({ node, pod }) => {
        await node.exec(['sh', '-ec', 'ip link add m0 up type veth peer name m1; ip link set m1 up'])
        const conf = bridgeConf({ type, master: 'm0' }, '10.1.0.0/24')
        const call = { type, conf, containerId: containerId(pod), netns: pod }
        works(await plugin(type, { ...call, command: 'ADD' }, node))
        const { file, dir } = shimmed(type, { ip: HELD })
        works(await plugin(type, { ...call, command: 'DEL', file }, node))
        const isGone = (await pod.exec(['ip', 'link', 'show', 'dev', 'eth0'])).status !== 0
        assert.deepEqual([isGone, existsSync(`${dir}/ended`)], [true, false])
        const { answer } = await waiting(call, node)
        writeFileSync(`${dir}/release`, '')
        works(await answer)
        assert.ok(existsSync(`${dir}/ended`))
        works(await plugin(type, { ...call, command: 'DEL' }, node))
      }),
    )

  it(
    'when somebody else deletes the link before ip has found it, DEL waits for ip',
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      const call = { conf: bridgeConf({}, '10.1.0.0/24'), containerId: containerId(pod), netns: pod }
      works(await plugin('bridge', { ...call, command: 'ADD' }, node))
      const other = '"$real" link delete dev $(sed -n "s/link set dev \\([^ ]*\\) .*/\\1/p" "$input")'
      const { file, dir } = shimmed('bridge', {
        ip: [OTHERWISE, other, WORK, 'status=$?', END, 'exit $status'].join('\n'),
      })
      works(await plugin('bridge', { ...call, command: 'DEL', file }, node))
      assert.ok(existsSync(`${dir}/ended`))
    }),
  )

  it(
    'when somebody else deletes the link that ip has found, DEL answers, and ip leaves a later link of this name',
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      const call = { conf: bridgeConf({}, '10.1.0.0/24'), containerId: containerId(pod), netns: pod }
      works(await plugin('bridge', { ...call, command: 'ADD' }, node))
      const other = `set -- $(head -n 1 "$input")
"$real" $*
"$real" link delete dev $4
"$real" link add $4 type veth peer name later`
      const { file, dir } = shimmed('bridge', {
        ip: [OTHERWISE, other, WAIT, 'tail -n 1 "$input" | "$real" -batch -', END].join('\n'),
      })
      works(await plugin('bridge', { ...call, command: 'DEL', file }, node))
      assert.ok(!existsSync(`${dir}/ended`))
      writeFileSync(`${dir}/release`, '')
      await until(() => existsSync(`${dir}/ended`))
      assert.equal((await node.exec(['ip', 'link', 'show', 'dev', 'later'])).status, 0)
    }),
  )

  for (const gone of [['a'], ['a', 'b', 'c']] as const)
    it(
      `GC of ${gone.length} answers while its ip still runs`,
      inNamespaces(['node', 'a', 'b', 'c', 'kept'], async ({ node, ...pods }) => {
        const conf = bridgeConf({}, '10.1.0.0/24')
        const call = (pod: Namespace) => ({ conf, containerId: containerId(pod), netns: pod })
        for (const name of [...gone, 'kept'] as const)
          works(await plugin('bridge', { ...call(pods[name]), command: 'ADD' }, node))
        const { file, dir } = shimmed('bridge', { ip: HELD })
        const valid = [{ containerID: containerId(pods.kept), ifname: 'eth0' }]
        const sweep = { conf: { ...conf, 'cni.dev/valid-attachments': valid }, containerId: null, ifname: null }
        works(await plugin('bridge', { ...sweep, command: 'GC', file }, node))
        assert.deepEqual([(await node.json('link')).length, existsSync(`${dir}/ended`)], [3, false])
        const { answer } = await waiting(call(pods.a), node)
        writeFileSync(`${dir}/release`, '')
        works(await answer)
        assert.ok(existsSync(`${dir}/ended`))
        for (const name of ['a', 'kept'] as const)
          works(await plugin('bridge', { ...call(pods[name]), command: 'DEL' }, node))
      }),
    )

  it(
    'after a DEL that was killed beside its ip, the next ADD waits for that ip and works',
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      const call = { conf: bridgeConf({}, '10.1.0.0/24'), containerId: containerId(pod), netns: pod }
      works(await plugin('bridge', { ...call, command: 'ADD' }, node))
      const killed = [OTHERWISE, 'kill -KILL $PPID', WORK, WAIT, END].join('\n')
      const { file, dir } = shimmed('bridge', { ip: killed })
      const { status } = await plugin('bridge', { ...call, command: 'DEL', file }, node)
      assert.notEqual(status, 0)
      const { answer } = await waiting(call, node)
      writeFileSync(`${dir}/release`, '')
      works(await answer)
      assert.ok(existsSync(`${dir}/ended`))
      works(await plugin('bridge', { ...call, command: 'DEL' }, node))
    }),
  )

  it(
    'links are done with the last of them that has the group of the deletion, and other links that go are none of them',
    inNamespaces(['node'], async ({ node }) => {
      const said = await heard(node, GROUPED, async (done) => {
        // The tool has yet to set the group. By then somebody may have made another link of this name.
        await node.exec(['sh', '-ec', 'ip link delete v2; ip link add v2 type veth peer name w2'])
        await node.exec(['sh', '-ec', 'ip link set v1 group 7; ip link delete group 7; ip link delete v3'])
        const before = done()
        await node.exec(['sh', '-ec', 'ip link set v2 group 7; ip link delete group 7'])
        return before
      })
      assert.deepEqual(said, [false, true])
    }),
  )

  it(
    'a port with the group that leaves its bridge is not a link that is gone',
    inNamespaces(['node'], async ({ node }) => {
      const leave = async () =>
        void (await node.exec([
          'sh',
          '-ec',
          'ip link add b0 type bridge; ip link set v1 group 7 master b0; ip link set v2 group 7 master b0; ip link set v1 nomaster; ip link set v2 nomaster',
        ]))
      assert.deepEqual(await heard(node, GROUPED, leave), [undefined, false])
    }),
  )

  it(
    'a transaction of nft is done when it is committed, and another’s is not it',
    inNamespaces(['node'], async ({ node }) => {
      const told = async (work: (input: string) => Promise<number | undefined>) => {
        await node.exec(['nft', 'add table ip mine; add set ip mine s { type inet_service; elements = { 80 }; }'])
        const listener = inside(at(node), () => listenerOf(NFT)) ?? assert.fail('nothing is listened to')
        const by = await work('delete table ip mine\n')
        return endingOf(NFT, '', at(node), { pid: by ?? pid, listener })?.isDone()
      }
      const own = async (input: string) => {
        const nft = Bun.spawn(['nsenter', `--net=${node.path}`, ...NFT], { stdin: Buffer.from(input) })
        assert.equal(await nft.exited, 0)
        return nft.pid
      }
      assert.equal(await told(own), true)
      assert.equal(await told(async (input) => void (await own(input))), false)
    }),
  )

  it(
    'nothing is listened to where the end of the tool is what counts, or where the namespace is gone',
    inNamespaces(['node'], async ({ node }) => {
      for (const input of [`${GROUPED}link set dev v3 up\n`, 'link delete dev v1\n', 'link delete group 7\n', ''])
        assert.equal(endingOf(IP, input, at(node), { pid }), undefined, input)
      for (const argv of [
        ['ip', '-d', '-j', '-batch', '-'],
        ['tc', '-batch', '-'],
        ['nft', '-f', '-'],
      ])
        assert.equal(endingOf(argv, GROUPED, at(node), { pid }), undefined)
      assert.equal(endingOf(IP, GROUPED, '/run/netns/gone' as NetnsPath, { pid }), undefined)
    }),
  )
})

/** Starts an ADD that has to wait for a lock, and gives its answer when it has been refused the lock at least once. */
async function waiting(call: Partial<Call>, node: Namespace): Promise<{ answer: Promise<Answer> }> {
  const dir = mkdtempSync('/run/waiting-')
  const [file, log] = [join(dir, 'bridge'), join(dir, 'log')]
  writeFileSync(log, '')
  writeFileSync(file, `#!/bin/sh\nexec ${STRACE} -D -qq -o ${log} -e trace=fcntl ${DIST}/bridge\n`)
  chmodSync(file, 0o755)
  const answer = plugin('bridge', { ...call, command: 'ADD', file }, node)
  await until(() => /F_OFD_SETLK.* = -1 EAGAIN/.test(readFileSync(log, 'utf8')), 20_000)
  return { answer }
}

function at({ path }: Namespace): NetnsPath {
  return path as NetnsPath
}

/**
 * Tells a listener the input of a tool, and does something on a node with the pairs v1, v2 and v3. Gives whether the
 * kernel says that the work is done, at once and in the end.
 */
async function heard<T>(
  node: Namespace,
  input: string,
  work: (done: () => boolean) => Promise<T>,
): Promise<[T, boolean]> {
  await node.exec([
    'sh',
    '-ec',
    'for n in 1 2 3; do ip link show v$n >/dev/null 2>&1 || ip link add v$n type veth peer name w$n; done',
  ])
  const ending = endingOf(IP, input, at(node), { pid }) ?? assert.fail('nothing is listened to')
  try {
    const given = await work(() => ending.isDone())
    const done = await until(() => ending.isDone(), 300).then(
      () => true,
      () => false,
    )
    return [given, done]
  } finally {
    ending.close()
  }
}
