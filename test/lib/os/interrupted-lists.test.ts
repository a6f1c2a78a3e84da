// lane: netns
// Tests lib/os/netlink-answer.ts: lists of the kernel while another program changes what they list.
import assert from 'node:assert/strict'
import { linksNow } from '../../../lib/os/links.ts'
import { NoAnswer } from '../../../lib/os/netlink-answer.ts'
import { inside } from '../../../lib/os/netns.ts'
import { NLM_F_DUMP, request } from '../../../lib/os/rtnetlink.ts'
import { Connected } from '../../../lib/os/sockets.ts'
import { parse } from '../../../lib/text/values.ts'
import { inNamespaces, type Namespace } from '../../support/harness.ts'
import { bridgeConf, network } from '../../support/network.ts'

/** So many that the kernel gives them in several pieces. */
const LINKS = 200
const RTM_GETLINK = 18

async function makeLinks(node: Namespace): Promise<string[]> {
  const names = [...Array(LINKS).keys()].map((n) => `kept${n}`)
  const stdin = names.map((name) => `link add ${name} type bridge\n`).join('')
  assert.equal((await node.exec(['ip', '-batch', '-'], { stdin })).status, 0)
  return names
}

describe('a list of the kernel that changes while it is read', () => {
  it(
    'ends with an error that says so',
    inNamespaces(['node'], async ({ node }, test) => {
      test.timeout(60_000)
      await makeLinks(node)
      // A namespace is entered for the moment of a call, so the socket is opened by its first question.
      const socket = new Connected(0)
      try {
        const pieces = socket.pieces(request(RTM_GETLINK, new Uint8Array(16), NLM_F_DUMP, []))
        const next = () => inside(parse.netns(node.path), () => pieces.next())
        assert.equal(next().done, false)
        await node.ip('link', 'add', 'another', 'type', 'bridge')
        assert.throws(
          () => {
            while (!next().done);
          },
          (cause: Error) => cause instanceof NoAnswer && /find out the links.*it changed while/.test(cause.message),
        )
      } finally {
        socket.close()
      }
    }),
  )

  it(
    'is asked for again until it is whole',
    inNamespaces(['node'], async ({ node }, test) => {
      test.timeout(60_000)
      const kept = await makeLinks(node)
      const script = 'while :; do ip link add flap type bridge; ip link del flap; done'
      const flapping = Bun.spawn(['nsenter', `--net=${node.path}`, 'sh', '-c', script], { stderr: 'ignore' })
      try {
        for (let i = 0; i < 100; i++) {
          try {
            const names = new Set(inside(parse.netns(node.path), linksNow).map(({ name }) => name as string))
            assert.deepEqual(
              kept.filter((name) => !names.has(name)),
              [],
            )
          } catch (cause) {
            // It changed eight times in a row.
            if (!(cause instanceof NoAnswer)) throw cause
          }
          await Bun.sleep(5)
        }
      } finally {
        flapping.kill()
        await flapping.exited
      }
    }),
  )

  it(
    'CHECK asks nft again when another program changes the ruleset meanwhile',
    inNamespaces(['node', 'pod'], async ({ node, pod }, test) => {
      test.timeout(60_000)
      const net = network(node, bridgeConf({ ipMasq: true }))
      const result = await net.add(pod)
      const script = 'nft add table inet t; while :; do nft add chain inet t c; nft delete chain inet t c; done'
      const flapping = Bun.spawn(['nsenter', `--net=${node.path}`, 'sh', '-c', script], { stderr: 'ignore' })
      try {
        for (let i = 0; i < 40; i++) await net.check(pod, result)
      } finally {
        flapping.kill()
        await flapping.exited
      }
      await net.del(pod)
    }),
  )
})
