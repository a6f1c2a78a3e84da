import sample from '../../conf/bridge.conflist' with { type: 'text' }
import { print } from '../output.ts'
import { addPod, checkPod, delPod, loseRoute, type Pod } from './acts.ts'
import { must } from './exec.ts'
import { configure, makeNode, plumb } from './node.ts'
import { fetchFrom, serveIn } from './page.ts'
import { pingAll } from './pings.ts'
import { OUTSIDE, PLACES } from './places.ts'
import { expect, step } from './screen.ts'
import { counts, difference, type Traces, traces } from './traces.ts'

/** The port of the node that leads to the server in the pod web. */
const PORT = 8080
const NAMES = ['web', 'app', 'db'] as const

/**
 * Tells the story of three pods on a private node. The demo attaches, tests, checks and removes them. Throws StepError.
 */
export async function playPods(): Promise<void> {
  print('plumb demo: three pods on a node of its own, in private namespaces that end with this command\n')
  const conf = JSON.parse(sample)
  const network: string = conf.name
  const [{ ipam }] = conf.plugins
  ipam.dataDir = PLACES.pool
  conf.plugins.push({ type: 'portmap', capabilities: { portMappings: true } })
  const counted: Traces[] = []
  await step('a node, and a host outside of it', async () => {
    await makeNode(ipam.ranges.map(([{ subnet }]: [{ subnet: string }]) => subnet))
    configure(conf)
    return `eth0 ${OUTSIDE.node4} ${OUTSIDE.node6}, network "${network}"`
  })
  await step('three namespaces', async () => {
    for (const name of NAMES) await must(['ip', 'netns', 'add', name])
    const found = await traces(network, NAMES)
    expect('links in pods', found.get('links in pods, but for lo'), [])
    counted.push(found)
    return `${NAMES.join(', ')}: nothing in them but lo`
  })
  const pods: Pod[] = []
  for (const name of NAMES) {
    const port = name === 'web' ? ['--port-mapping', `${PORT}:80`] : []
    await step(`plumb cni add ${network} ${name}`, async () => {
      const pod = await addPod(network, { name }, ...port)
      pods.push(pod)
      return `${pod.addresses.join(' ')}${port.length > 0 ? `, host port ${PORT}` : ''}`
    })
  }
  await packets(pods)
  await checks(network, counted)
  await removal(network)
  await step('what the pods left', async () => {
    counted.push(await traces(network, NAMES))
    return leftovers(counted, pods)
  })
  print(`\n${counts(['at start', '3 pods', 'at end'], counted)}`)
  print(`  New at the end: cni0 and its addresses, which are the network's and stay for the next pod.`)
}

async function packets(pods: readonly Pod[]): Promise<void> {
  const [web, app] = pods as [Pod, Pod]
  await step('ping from each pod to the others', () => pingAll(pods, (from, to) => (from === to ? [] : to.addresses)))
  await step('ping from each pod to the node', () => pingAll(pods, (from, to) => (from === to ? from.gateways : [])))
  await step('HTTP servers', async () => {
    await serveIn(web.name)
    await serveIn('outside')
    return 'in web and outside, on port 80'
  })
  for (const [i, address] of web.addresses.entries())
    await step(`HTTP from app to web, ${family(address)}`, () =>
      fetchFrom(app.name, address, web.name, app.addresses[i] as string),
    )
  const { node4, node6, host4, host6 } = OUTSIDE
  for (const [from, address, client] of [
    ['outside', node4, host4],
    ['outside', node6, host6],
    ['host', '127.0.0.1', web.gateways[0] as string],
  ] as const)
    await step(
      `HTTP from ${from === 'host' ? 'the node' : from}, ${address.includes(':') ? `[${address}]` : address}:${PORT}`,
      () => fetchFrom(from, address, web.name, client, PORT),
    )
  for (const [address, node] of [
    [host4, node4],
    [host6, node6],
  ] as const)
    await step(`HTTP to outside, masqueraded, ${family(address)}`, () => fetchFrom(app.name, address, 'outside', node))
}

async function checks(network: string, counted: Traces[]): Promise<void> {
  await step('plumb cni check, each pod', async () => {
    counted.push(await traces(network, NAMES))
    for (const name of NAMES) expect(`check of ${name}`, await checkPod(network, name), 'as it should be')
    return 'each is as it should be'
  })
  await step('fault: app loses its default route', () => loseRoute('app'))
  await step(`plumb cni check ${network} app`, async () => {
    const said = await checkPod(network, 'app')
    expect('what check said', said, 'route 0.0.0.0/0 in the pod is missing')
    return `exit 1: ${said}`
  })
}

async function removal(network: string): Promise<void> {
  await step(`plumb cni del ${network} web`, () => delPod(network, { name: 'web' }))
  await step(`plumb cni del ${network} app`, () => delPod(network, { name: 'app' }))
  await step(`plumb cni del ${network} db`, async () => {
    await must(['ip', 'netns', 'delete', 'db'])
    const { status, stderr } = await plumb(['del', network, 'db'])
    expect('what del said', [status, stderr], [0, ''])
    return 'done, though its namespace was deleted before'
  })
  await step(`plumb cni gc ${network} --all`, async () => {
    const { status, stdout, stderr } = await plumb(['gc', network, '--all', '--json'])
    expect('what gc said', [status, stderr], [0, ''])
    expect('what gc found', JSON.parse(stdout), { dryRun: false, removed: [] })
    return 'found no attachment that was left'
  })
}

// The middle count must see the objects of the pods. That proves that the count works. So the last count, without
// leftovers, is a proof too.
function leftovers([start, middle, end]: readonly Traces[], pods: readonly Pod[]): string {
  if (!start || !middle || !end) throw new Error('nothing was counted')
  const grown = [...middle].map(([what, names]) => [what, names.length - (start.get(what)?.length ?? 0)])
  const gateways = pods[0]?.gateways ?? []
  const lengths = [4, gateways.length, 3, 6, 3, 12, 1, 3, 3]
  expect(
    'what three pods had',
    grown,
    grown.map(([what], i) => [what, lengths[i]]),
  )
  const prefixes = pods[0]?.prefixes ?? []
  expect('what is new since the start', difference(start, end), [
    '+ cni0',
    ...gateways.map((gateway, i) => `+ ${gateway}/${prefixes[i]} on cni0`),
  ])
  return 'nothing: counted before, with and after them'
}

function family(address: string): string {
  return address.includes(':') ? 'IPv6' : 'IPv4'
}
