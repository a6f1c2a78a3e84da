import assert from 'node:assert/strict'
import { type Namespace, type Row, snapshot, until } from '../harness.ts'
import { type Conf, type Network, network, settled, traces } from '../network.ts'

/** A plugin under test. */
export interface Subject {
  readonly type: string
  /** A configuration that ADD takes, of a network of its own. */
  conf(): Conf
  /** The same network's, with something in it that ADD refuses with code 7. */
  refused(conf: Conf): Conf
  /**
   * What a second ADD for the same attachment meets: an error, or the same result (kubelet and CRI-O set lo up again
   * and again).
   */
  readonly again: 'refused' | 'same'
  /** Throws unless an attachment works: real packets, or for a pool what is on disk. */
  works(pod: Namespace, result: Row, node: Namespace, conf: Conf): Promise<void>
  /** What its node needs before the first ADD. */
  prepare?(node: Namespace): Promise<void>
  /** How its calls are made, when it needs another plugin before it. */
  network?(node: Namespace, conf: Conf): Network
}

/** A node with the subject's network, and what the tests of every plugin need to know of it. */
export interface Started extends Record<'node' | 'pod' | 'other', Namespace> {
  readonly net: Network
  /** Of `other`. */
  readonly result: Row
  /** Throws unless node, pod and disk are, or within a second become, as they were, and `other` works. */
  unchanged(podGone?: boolean): Promise<void>
}

/**
 * A network with one attachment, `other`, so that what the attachments of a network share is there before the test
 * begins.
 */
export async function start(
  subject: Subject,
  { node, pod, other }: Record<'node' | 'pod' | 'other', Namespace>,
): Promise<Started> {
  // The kernel's own link-local addresses, tentative for a second or two, would be one more thing to wait for.
  await node.exec(['sh', '-c', 'echo 0 >/proc/sys/net/ipv6/conf/default/accept_dad'])
  await subject.prepare?.(node)
  const net = (subject.network ?? network)(node, subject.conf())
  const result = await net.add(other)
  await subject.works(other, result, node, net.conf)
  const before = await settled(() => state(node, pod, net.conf))
  async function unchanged(podGone = false): Promise<void> {
    await until(
      async () =>
        assert.deepEqual(
          await state(node, podGone ? undefined : pod, net.conf),
          podGone ? { ...before, pod: [] } : before,
        ) === undefined,
      1000,
    )
    assert.deepEqual(traces(pod, net.conf), [])
    await subject.works(other, result, node, net.conf)
  }
  return { net, node, pod, other, result, unchanged }
}

/** What there is of the network: on the node, links in the pod, files that tell of the pod. */
export async function state(node: Namespace, pod: Namespace | undefined, conf: Conf): Promise<object> {
  return {
    node: await snapshot(node),
    pod: pod ? (await pod.json('link')).map(({ ifname }) => ifname) : [],
    disk: pod ? traces(pod, conf) : [],
  }
}
