import sample from '../../conf/bridge.conflist' with { type: 'text' }
import { writeAtomic } from '../../lib/os/files.ts'
import { print } from '../output.ts'
import { addPod, type Pod } from './acts.ts'
import { exec, lines, must } from './exec.ts'
import { configure, makeNode } from './node.ts'
import { fetchMany, serveIn } from './page.ts'
import { OUTSIDE, PLACES } from './places.ts'
import { startLogged, until } from './running.ts'
import { expect, step } from './screen.ts'
import { CONNECTIONS, spread } from './spread.ts'

const BACKENDS = ['web-a', 'web-b', 'web-c'] as const
const [VIP, STICKY_VIP, NODE_PORT] = ['10.96.0.10', '10.96.0.11', 30_080] as const
const OBJECTS = '/run/plumb-demo/objects'
const SOCKET = '/run/plumb/agent.sock'
const LIMIT_MS = 10_000

/** Tells the story of a Service: an address for three pods, without Kubernetes. Throws StepError. */
export async function playServices(): Promise<void> {
  print('plumb demo: a Service of three pods on a node of its own, from manifests in a folder\n')
  const conf = JSON.parse(sample)
  const [{ ipam }] = conf.plugins
  ipam.dataDir = PLACES.pool
  await step('a node, and a host outside of it', async () => {
    await makeNode(ipam.ranges.map(([{ subnet }]: [{ subnet: string }]) => subnet))
    await lines('host', [`route add default via ${OUTSIDE.host4}`])
    await lines('outside', [`route add 10.96.0.0/16 via ${OUTSIDE.node4}`])
    configure(conf)
    return `eth0 ${OUTSIDE.node4}`
  })
  const pods = new Map<string, Pod>()
  await step('three pods with servers, and a client', async () => {
    for (const name of [...BACKENDS, 'client']) {
      await must(['ip', 'netns', 'add', name])
      pods.set(name, await addPod(conf.name, { name }))
      if (name !== 'client') await serveIn(name)
    }
    return [...pods.values()].map(({ addresses }) => addresses[0]).join(' ')
  })
  const ready = (names: readonly string[]) => publish(names.map((name) => pods.get(name)?.addresses[0] ?? ''))
  await step('plumb agent --service-proxy=DIR', () => startAgent(() => ready(BACKENDS)))
  await step('plumb services', async () => {
    const { status, stdout } = await exec([process.execPath, 'services', 'shop/web', '--json'])
    const [service] = JSON.parse(stdout)
    expect('the endpoints of shop/web', [status, service.ports[0].endpoints.length], [0, BACKENDS.length])
    return `shop/web ${service.ports[0].addresses[0]}, ${BACKENDS.length} endpoints`
  })
  await spread(`${CONNECTIONS} connections to ${VIP}`, 'client', `http://${VIP}/`, BACKENDS)
  await spread(`outside to the node, port ${NODE_PORT}`, 'outside', `http://${OUTSIDE.node4}:${NODE_PORT}/`, BACKENDS)
  await step('web-b is removed', () => ready(['web-a', 'web-c']))
  await spread(`${CONNECTIONS} connections to ${VIP}`, 'client', `http://${VIP}/`, ['web-a', 'web-c'])
  await step('with affinity a client has one pod', async () => {
    const found = await fetchMany('client', `http://${STICKY_VIP}/`, CONNECTIONS)
    const [one, more] = Object.entries(found)
    expect('pods that answered', more, undefined)
    return `${STICKY_VIP}: ${one?.[0]} answered all ${one?.[1]}`
  })
  await step('no pod is left', async () => {
    await ready([])
    const began = performance.now()
    const { status, stderr } = await exec([process.execPath, 'demo', '--fetch', `http://${VIP}/`], { ns: 'client' })
    const ms = performance.now() - began
    if (status === 0 || ms > 1000 || /TimeoutError|timed out/.test(stderr))
      throw new Error(`the client was not refused at once, but after ${ms.toFixed(0)} ms: ${stderr}`)
    return 'the client is refused at once'
  })
}

async function startAgent(publishFirst: () => Promise<string>): Promise<string> {
  await must(['mkdir', '-p', OBJECTS, PLACES.store, '/run/plumb'])
  writeAtomic(`${PLACES.store}/config`, JSON.stringify({ Network: '10.99.0.0/16', Backend: { Type: 'alloc' } }), {
    durable: false,
  })
  const options = [
    '--node-name=demo',
    '--store=file',
    `--file-store-dir=${PLACES.store}`,
    '--state-dir=/run/plumb/state',
    `--socket=${SOCKET}`,
    '--status-address=off',
    '--iface=eth0',
    `--service-proxy=${OBJECTS}`,
  ]
  const { child, said } = startLogged([process.execPath, 'agent', ...options], {})
  await until(
    async () => {
      if (child.exitCode !== null) throw new Error(`the agent ended with ${child.exitCode}:\n${said()}`)
      return (await exec([process.execPath, 'status'])).status === 0 || undefined
    },
    LIMIT_MS,
    () => `the agent is not ready:\n${said()}`,
  )
  return publishFirst()
}

let serial = 0

// Writes the manifests, and waits until the kernel has them: it has the last one then.
async function publish(addresses: readonly string[]): Promise<string> {
  const slice = (service: string) => ({
    kind: 'EndpointSlice',
    metadata: { namespace: 'shop', name: `${service}-1`, labels: { 'kubernetes.io/service-name': service } },
    addressType: 'IPv4',
    ports: [{ name: '', port: 80 }],
    endpoints: addresses.map((address) => ({ addresses: [address], nodeName: 'demo' })),
  })
  const service = (name: string, spec: object) => ({
    kind: 'Service',
    metadata: { namespace: 'shop', name },
    spec: { ports: [{ port: 80 }], ...spec },
  })
  const marker = `10.97.0.${++serial}`
  const items = [
    service('web', { clusterIP: VIP, type: 'NodePort', ports: [{ port: 80, nodePort: NODE_PORT }] }),
    slice('web'),
    service('cart', { clusterIP: STICKY_VIP, sessionAffinity: 'ClientIP' }),
    slice('cart'),
    service('marker', { clusterIP: marker }),
  ]
  writeAtomic(`${OBJECTS}/shop.json`, JSON.stringify({ kind: 'List', items }), { durable: false })
  const asking = ['nft', 'get', 'element', 'inet', 'plumb_services', 'vips4', `{ ${marker} }`]
  await until(
    async () => (await exec(asking)).status === 0 || undefined,
    LIMIT_MS,
    () => 'the agent did not program the Services',
  )
  return `${addresses.length} endpoints in the kernel`
}
