// Tests lib/verbs and lib/journal, killed at every step.
import assert from 'node:assert/strict'
import { existsSync } from 'node:fs'
import { endingOf, listenerOf } from '../../lib/os/link-removal.ts'
import { inside } from '../../lib/os/netns.ts'
import type { NetnsPath } from '../../lib/text/values.ts'
import { inNamespaces, type Namespace, plugin, until } from '../support/harness.ts'
import { works } from '../support/host-ports.ts'
import { bridgeConf, containerId } from '../support/network.ts'
import { shimmed } from '../support/tool-shims.ts'

const [IP, NFT] = [
  ['ip', '-batch', '-'],
  ['nft', '-f', '-'],
]
/** Who asks the kernel, as far as messages tell: nobody who does it here. */
const pid = process.pid

describe('work that is done before its tool has ended', () => {
  it(
    'DEL answers when the link is gone, though ip is still at work, and what comes next for the attachment waits for that ip',
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      const call = { conf: bridgeConf({}, '10.1.0.0/24'), containerId: containerId(pod), netns: pod }
      works(await plugin('bridge', { ...call, command: 'ADD' }, node))
      const { file, dir } = shimmed('bridge', {
        // The process keeps its number, by which the kernel names it.
        ip: `grep -q "link delete" "$input" || exec "$real" "$@" <"$input"
(tail --pid=$$ -f /dev/null; touch "$dir/ended") </dev/null >/dev/null 2>&1 &
exec strace -D -qq -o /dev/null -e trace=exit_group -e inject=exit_group:delay_enter=9000000 "$real" "$@" <"$input"`,
      })
      works(await plugin('bridge', { ...call, command: 'DEL', file }, node))
      assert.deepEqual([(await node.json('link')).length, existsSync(`${dir}/ended`)], [2, false])
      works(await plugin('bridge', { ...call, command: 'ADD' }, node))
      assert.ok(existsSync(`${dir}/ended`))
      works(await plugin('bridge', { ...call, command: 'DEL' }, node))
    }),
  )

  it(
    'links of a group are done with the last of them, and another link that goes is none of them',
    inNamespaces(['node'], async ({ node }) => {
      const said = await heard(
        node,
        'link set dev v1 group 7\nlink set dev v2 group 7\nlink delete group 7\n',
        async (done) => {
          await node.exec(['sh', '-ec', 'ip link delete v1; ip link delete v3'])
          const before = done()
          await node.exec(['sh', '-ec', 'ip link set v2 group 7; ip link delete group 7'])
          return before
        },
      )
      assert.deepEqual(said, [false, true])
    }),
  )

  it(
    'what somebody else removes is not what the tool was asked for: the tool may yet remove a later link of that name',
    inNamespaces(['node'], async ({ node }) => {
      const remove = async () => void (await node.exec(['ip', 'link', 'delete', 'v1']))
      assert.deepEqual(await heard(node, 'link set dev v2 down\nlink delete dev v1\n', remove), [undefined, false])
      assert.deepEqual(await heard(node, 'link delete dev v1\n', remove), [undefined, false])
    }),
  )

  it(
    'a port that leaves its bridge is not a link that is gone',
    inNamespaces(['node'], async ({ node }) => {
      const leave = async () =>
        void (await node.exec([
          'sh',
          '-ec',
          'ip link add b0 type bridge; ip link set v1 master b0; ip link set v1 nomaster',
        ]))
      assert.deepEqual(await heard(node, 'link delete dev v1\n', leave), [undefined, false])
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
      for (const input of [
        'link delete dev v1\nlink set dev v2 up\n',
        'link set dev v1 up\n',
        'link delete group 7\n',
        '',
      ])
        assert.equal(endingOf(IP, input, at(node), { pid }), undefined, input)
      for (const argv of [
        ['ip', '-d', '-j', '-batch', '-'],
        ['tc', '-batch', '-'],
        ['nft', '-f', '-'],
      ])
        assert.equal(endingOf(argv, 'link delete dev v1\n', at(node), { pid }), undefined)
      assert.equal(endingOf(IP, 'link delete dev v1\n', '/run/netns/gone' as NetnsPath, { pid }), undefined)
    }),
  )
})

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
