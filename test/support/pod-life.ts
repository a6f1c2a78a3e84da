import assert from 'node:assert/strict'
import { execa } from 'execa'
import { type Namespace, ping, plugin, type Row, until } from './harness.ts'
import { aliasOf, linksOf } from './lan.ts'
import { type Conf, containerId, network, traces } from './network.ts'

/** A plugin whose link stands in a pod alone. */
export interface Life {
  readonly conf: Conf
  /** What is different for the second pod. */
  readonly beside?: object
  /** What `ip -d link` calls it, and what it has to show of it. */
  readonly kind: string
  readonly data?: Row
  /** What else a pod reaches, beside the other pod. */
  readonly router: readonly string[]
  /** Whether pods reach each other. */
  readonly meets: boolean
}

/**
 * One life of two attachments, in few steps: ADD, CHECK, packets, DEL, and GC in a namespace that lives. DEL comes with
 * the namespace unnamed, gone and live, for attachments that exist and that do not. Each leaves nothing of one and all
 * of the other. `ruin` takes away what they stand on before the last DEL.
 */
export async function live(
  { conf, beside, kind, data = {}, router, meets }: Life,
  { node, pod, other }: Record<'node' | 'pod' | 'other', Namespace>,
  ruin?: () => Promise<unknown>,
): Promise<void> {
  const net = network(node, conf)
  const onNode = async () => (await node.json('link')).map(({ ifname }) => ifname)
  const gone = async () => assert.deepEqual([await linksOf(pod), traces(pod, conf)], [[], []])
  const before = await onNode()
  const result = await net.add(pod)
  const [link, ...more] = await linksOf(pod)
  assert.deepEqual(
    [
      more,
      link?.['ifname'],
      link?.['linkinfo'].info_kind,
      link?.['flags'].includes('UP'),
      link?.['ifalias'],
      await onNode(),
    ],
    [[], 'eth0', kind, true, aliasOf(pod, conf), before],
  )
  assert.deepEqual(result['interfaces'], [
    { name: 'eth0', mac: link?.['address'], mtu: link?.['mtu'], sandbox: pod.path },
  ])
  for (const [key, value] of Object.entries(data)) assert.equal(link?.['linkinfo'].info_data[key], value, key)
  const second = network(node, { ...conf, ...beside })
  const theirs = await second.add(other)
  await net.check(pod, result)
  for (const one of [pod, other]) await one.ip('link', 'set', 'lo', 'up')
  const reached = [...router, ...(meets ? addressesOf(theirs) : addressesOf(result))]
  for (const address of reached) await until(() => ping(pod, address))
  assert.match((await net.fails('ADD', pod)).msg, /a link of that name is there already/)
  await pod.ip('link', 'set', 'dev', 'eth0', 'down')
  assert.match((await net.fails('CHECK', pod, { conf: { ...conf, prevResult: result } })).msg, /up off, want true/)
  await net.del(pod, { netns: '' })
  await gone()
  await net.add(pod)
  await net.gc(other)
  await net.del(pod)
  await gone()
  await net.add(pod)
  await execa('ip', ['netns', 'delete', containerId(pod)])
  await net.del(pod, { netns: pod.path })
  assert.deepEqual(traces(pod, conf), [])
  await second.check(other, theirs)
  for (const address of meets ? router : addressesOf(theirs)) assert.ok(await ping(other, address), address)
  await ruin?.()
  await second.del(other)
  assert.deepEqual([await linksOf(other), traces(other, conf)], [[], []])
}

/** Adds, looks, and removes: what `ip -d addr` shows of the pod's link, and the result. */
export async function glance(
  conf: Conf,
  { node, pod }: Record<'node' | 'pod', Namespace>,
): Promise<{ link: Row; result: Row }> {
  const { type } = conf as Conf & { type: string }
  const call = { conf, containerId: containerId(pod), netns: pod }
  const { status, stdout, result } = await plugin(type, { command: 'ADD', ...call }, node)
  assert.equal(status, 0, stdout)
  const link = (await linksOf(pod)).find(({ ifname }) => ifname === 'eth0')
  for (const [command, prevResult] of [
    ['CHECK', result],
    ['DEL', undefined],
  ] as const) {
    const done = await plugin(type, { command, ...call, conf: { ...conf, ...(prevResult && { prevResult }) } }, node)
    assert.equal(done.status, 0, done.stdout)
  }
  return { link: link as Row, result }
}

function addressesOf({ ips }: Row): string[] {
  return ips.map(({ address }: Row) => address.split('/')[0])
}
