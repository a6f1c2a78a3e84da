import assert from 'node:assert/strict'
import { mkdtempSync, readdirSync, readFileSync, readlinkSync } from 'node:fs'
import { join } from 'node:path'
import { isDeepStrictEqual } from 'node:util'
import { type Answer, type Call, type Namespace, ping, plugin, type Row, until } from './harness.ts'

let serial = 0

/** A configuration that no other test shares its name and its data directory with. */
export interface Conf {
  readonly name: string
  readonly ipam?: { readonly dataDir?: string; readonly [key: string]: unknown }
  readonly [key: string]: unknown
}
/**
 * The calls of one network on one node. The container id of a namespace is the last part of its path; `more` overrides
 * any part of a call.
 */
export interface Network {
  readonly conf: Conf
  add(pod: Namespace, more?: Partial<Call>): Promise<Row>
  /** With the result of an ADD as prevResult. */
  check(pod: Namespace, result: object, more?: Partial<Call>): Promise<void>
  del(pod: Namespace, more?: Partial<Call>): Promise<void>
  /** Keeps the attachments of these namespaces, on eth0. */
  gc(...keep: readonly Namespace[]): Promise<void>
  /** A call that has to fail: its error. */
  fails(command: string, pod: Namespace, more?: Partial<Call>): Promise<Answer['error']>
}

/**
 * A configuration of `bridge`: its link `br0`, addresses from host-local in these subnets, further keys as given
 * (undefined removes one).
 */
export function bridgeConf(keys: object = {}, ...subnets: readonly string[]): Conf {
  const ranges = (subnets.length > 0 ? subnets : ['10.1.0.0/24']).map((subnet) => [{ subnet }])
  return {
    cniVersion: '1.1.0',
    name: `net${++serial}`,
    type: 'bridge',
    bridge: 'br0',
    ipam: { type: 'host-local', dataDir: mkdtempSync('/run/ipam-'), ranges },
    ...keys,
  }
}

/** The network of a configuration on a node. */
export function network(node: Namespace, conf: Conf): Network {
  const call = (command: string, pod: Namespace | undefined, more: Partial<Call> = {}) =>
    plugin(
      conf['type'] as string,
      { command, conf, ...(pod && { containerId: containerId(pod), netns: pod }), ...more },
      node,
    )
  async function works(answer: Promise<Answer>): Promise<Row> {
    const { status, stdout, stderr, result } = await answer
    assert.equal(status, 0, `${stdout}${stderr}`)
    return result
  }
  return {
    conf,
    add: (pod, more) => works(call('ADD', pod, more)),
    check: async (pod, result, more) =>
      void (await works(call('CHECK', pod, { conf: { ...conf, prevResult: result }, ...more }))),
    del: async (pod, more) => void (await works(call('DEL', pod, more))),
    gc: async (...keep) =>
      void (await works(
        call('GC', undefined, {
          conf: {
            ...conf,
            'cni.dev/valid-attachments': keep.map((pod) => ({ containerID: containerId(pod), ifname: 'eth0' })),
          },
        }),
      )),
    async fails(command, pod, more) {
      const { status, stdout, error } = await call(command, pod, more)
      assert.equal(status, 1, `${command} was to fail and answered ${stdout}`)
      // What a person reads: no key of the CNI error object missing, no stack, no name of a class.
      assert.ok(Number.isInteger(error.code) && error.msg, stdout)
      assert.doesNotMatch(stdout, /\bat \S+:\d+|undefined|\[object/)
      return error
    },
  }
}

/** The container id that a namespace's attachments have. */
export function containerId(pod: Namespace): string {
  return pod.path.slice(pod.path.lastIndexOf('/') + 1)
}

/**
 * The files below the network's data directory, /run/cni and /var/lib/cni whose name, text or link target holds the
 * container id of a namespace: what an attachment has on disk.
 */
export function traces(pod: Namespace, { ipam }: Conf): string[] {
  return mentions(
    new RegExp(`\\b${containerId(pod)}\\b`),
    ...(ipam?.dataDir ? [ipam.dataDir] : []),
    '/run/cni',
    '/var/lib/cni',
  )
}

/**
 * The files below these directories whose name, text or link target holds such an id. A pool's list of owners does not
 * count: it only says where to look first, and is made again when it is wrong.
 */
export function mentions(id: RegExp, ...dirs: readonly string[]): string[] {
  const isList = (path: string) => /\/\.plumb\/[^/]+\/owners$/.test(path)
  return dirs.flatMap((dir) => list(dir).filter((path) => !isList(path) && (id.test(path) || id.test(text(path)))))
}

/**
 * What `look` gives once it gives the same twice running: the kernel does some of its work (carrier, multicast groups)
 * a moment after it was asked to.
 */
export async function settled<T>(look: () => Promise<T>): Promise<T> {
  const seen: T[] = []
  await until(async () => isDeepStrictEqual(seen.push(await look()) > 1 && seen.at(-2), seen.at(-1)))
  return seen.at(-1) as T
}

function list(dir: string): string[] {
  try {
    return readdirSync(dir, { recursive: true, withFileTypes: true }).flatMap((one) =>
      one.isDirectory() || one.isSocket() ? [] : [join(one.parentPath, one.name)],
    )
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code === 'ENOENT') return []
    throw cause
  }
}

function text(path: string): string {
  try {
    return readlinkSync(path)
  } catch {
    return readFileSync(path, 'utf8')
  }
}

/** Waits until the node reaches both addresses of a pod's result, and the pod its gateways. */
export async function answersBothWays(
  node: Namespace,
  pod: Namespace,
  result: Row,
  gateways: readonly string[],
): Promise<void> {
  const addresses: string[] = (result['ips'] ?? [result['ip4'], result['ip6']]).map((ip: Row) =>
    (ip['address'] ?? ip['ip']).replace(/\/.*/, ''),
  )
  assert.equal(addresses.length, 2)
  for (const address of addresses) await until(() => ping(node, address))
  for (const gateway of gateways) await until(() => ping(pod, gateway))
}

/** That the addresses of a pod and its gateway work at once, without duplicate address detection. `own` shows the gateway. */
export async function worksAtOnce(node: Namespace, pod: Namespace, own: readonly string[]): Promise<void> {
  const links = [...(await pod.json('addr', 'show', 'dev', 'eth0')), ...(await node.json('addr', 'show', ...own))]
  const seen = links.flatMap((link) => link['addr_info'].filter(({ scope }: Row) => scope === 'global'))
  assert.deepEqual(
    seen.map((one) => [one.local, one.tentative, one.nodad]),
    [
      ['fd00:1::2', undefined, true],
      ['fd00:1::1', undefined, true],
    ],
  )
  assert.ok(await ping(pod, 'fd00:1::1'))
}
