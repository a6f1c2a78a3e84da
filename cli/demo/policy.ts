import sample from '../../conf/bridge.conflist' with { type: 'text' }
import { writeAtomic } from '../../lib/os/files.ts'
import { maybeSysctl } from '../../lib/os/sysctls.ts'
import { print } from '../output.ts'
import { addPod, delPod, type Pod } from './acts.ts'
import { exec, must } from './exec.ts'
import { configure, makeNode } from './node.ts'
import { OUTSIDE, PLACES } from './places.ts'
import { type Running, startLogged, until } from './running.ts'
import { expect, painted, step } from './screen.ts'
import { difference, type Traces } from './traces.ts'

const [NAMES, SPACE, NODE, SUBNET] = [['web', 'app', 'db'], 'shop', 'demo', '10.244.1.0'] as const
const MANIFESTS = '/run/manifests'
const LIMIT_MS = 10_000
const AGENT = [
  `--node-name=${NODE}`,
  '--store=file',
  `--file-store-dir=${PLACES.store}`,
  '--state-dir=/run/plumb/state',
  '--iface=eth0',
  `--network-policy=${MANIFESTS}`,
  '--policy-log=on',
]
const NETWORK = { Network: '10.244.0.0/16', SubnetMin: SUBNET, SubnetMax: SUBNET, Backend: { Type: 'host-gw' } }
const DENY = { podSelector: {}, policyTypes: ['Ingress'] }
const ALLOW = {
  podSelector: { matchLabels: { app: 'web' } },
  ingress: [{ from: [{ podSelector: { matchLabels: { app: 'app' } } }] }],
}
/** The drop of a ping from db to web, as the agent logs it. */
const DROPPED =
  /policy: (dropped ICMP shop\/db) \(\S+\) → (shop\/web) \(\S+\): (shop\/default-deny isolates shop\/web .*)/

/**
 * Tells the story of three pods on a bridge, and of policies that come and go. At the end the demo removes everything.
 * Throws StepError.
 */
export async function playPolicy(): Promise<void> {
  print('plumb demo: NetworkPolicy without Kubernetes: three pods, an agent and a folder of manifests\n')
  const conf = JSON.parse(sample)
  conf.plugins[0].ipam = { ...conf.plugins[0].ipam, dataDir: PLACES.pool, ranges: [[{ subnet: `${SUBNET}/24` }]] }
  const pods: Pod[] = []
  await step('a node with a bridge, and three pods', async () => {
    await makeNode([`${SUBNET}/24`])
    configure(conf)
    for (const name of NAMES) {
      await must(['ip', 'netns', 'add', name])
      pods.push(await addPod(conf.name, { name }))
    }
    await must(['sysctl', '-qw', 'net.bridge.bridge-nf-call-iptables=1'])
    expect(
      'net.bridge.bridge-nf-call-iptables, which br_netfilter has',
      maybeSysctl('bridge/bridge-nf-call-iptables'),
      '1',
    )
    return `${NAMES.join(', ')} on cni0; eth0 ${OUTSIDE.node4}`
  })
  await step(`their manifests in ${MANIFESTS}`, async () => {
    await must(['mkdir', '-p', PLACES.store, MANIFESTS])
    writeAtomic(`${PLACES.store}/config`, JSON.stringify(NETWORK), { durable: false })
    for (const pod of pods) manifest(pod.name, podOf(pod))
    return `three Pods of namespace ${SPACE}`
  })
  const before = await tables()
  let agent: Running | undefined
  await step('plumb agent --network-policy=DIR', async () => {
    agent = startLogged([process.execPath, 'agent', ...AGENT])
    await until(
      async () => (await exec([process.execPath, 'status'])).status === 0 || undefined,
      LIMIT_MS,
      () => `the agent is not ready:\n${agent?.said()}`,
    )
    return 'ready, in nft table inet plumb_policy'
  })
  await matrix('no policy: everything passes', pods, () => true)
  manifest('deny', policyOf('default-deny', DENY))
  await matrix('default-deny: nothing passes', pods, () => false)
  let reason = ''
  await step('why, in the log of the agent', async () => {
    const [, from, to, why = ''] = await until(
      async () => DROPPED.exec(agent?.said() ?? '') ?? undefined,
      LIMIT_MS,
      () => `no line about a ping from db to web:\n${agent?.said()}`,
    )
    reason = why
    return `${from} -> ${to}`
  })
  print(`    ${reason}`)
  manifest('allow', policyOf('allow-app', ALLOW))
  await matrix('allow-app: app reaches web', pods, (from, to) => from === 'app' && to === 'web')
  await must(['rm', `${MANIFESTS}/deny.json`, `${MANIFESTS}/allow.json`])
  await matrix('both are deleted: everything passes', pods, () => true)
  await step('the pods and the agent go', async () => {
    for (const name of NAMES) await delPod(conf.name, { name })
    agent?.child.kill('SIGTERM')
    expect('exit status of the agent', await agent?.child.exited, 0)
    await must([process.execPath, 'agent', 'cleanup', ...AGENT])
    expect('nft tables that are new since the start', difference(before, await tables()), [])
    return 'no nft table and no eth0 is left'
  })
}

// Pings each pod from each other pod until exactly the wanted pairs are answered, and draws who reached whom.
async function matrix(
  title: string,
  pods: readonly Pod[],
  isWanted: (from: string, to: string) => boolean,
): Promise<void> {
  const pairs = pods.flatMap((from) =>
    pods.flatMap((to) => (from === to ? [] : [{ from: from.name, to: to.name, ip: to.addresses[0] as string }])),
  )
  const wanted = pairs.map(({ from, to }) => isWanted(from, to))
  const isAnswered = async ({ from, ip }: (typeof pairs)[number]) =>
    (await exec(['ping', '-n', '-q', '-c', '1', '-W', '1', ip], { ns: from })).status === 0
  let seen: readonly boolean[] = []
  await step(title, async () => {
    await until(
      async () => {
        seen = await Promise.all(pairs.map(isAnswered))
        return Bun.deepEquals(seen, wanted) || undefined
      },
      LIMIT_MS,
      () => {
        const answered = pairs.flatMap(({ from, to }, i) => (seen[i] ? [`${from} to ${to}`] : []))
        return `answered are ${answered.join(', ') || 'none'}`
      },
    )
    return `${seen.filter(Boolean).length} of ${pairs.length} pairs are answered`
  })
  const cell = (from: string, to: string) => {
    if (from === to) return '-'.padEnd(6)
    const isReached = seen[pairs.findIndex((pair) => pair.from === from && pair.to === to)] === true
    return painted((isReached ? 'ok' : 'drop').padEnd(6), isReached)
  }
  print(`    ${'from/to'.padEnd(10)}${NAMES.map((name) => name.padEnd(6)).join('')}`.trimEnd())
  for (const from of NAMES) print(`    ${from.padEnd(10)}${NAMES.map((to) => cell(from, to)).join('')}`.trimEnd())
}

async function tables(): Promise<Traces> {
  return new Map([['nft tables', (await must(['nft', 'list', 'tables'])).trim().split('\n').filter(Boolean)]])
}

function manifest(name: string, object: object): void {
  writeAtomic(`${MANIFESTS}/${name}.json`, JSON.stringify(object), { durable: false })
}

function podOf({ name, addresses }: Pod): object {
  return {
    kind: 'Pod',
    metadata: { namespace: SPACE, name, labels: { app: name } },
    spec: { nodeName: NODE, containers: [] },
    status: { phase: 'Running', podIPs: addresses.map((ip) => ({ ip })) },
  }
}

function policyOf(name: string, spec: object): object {
  return { kind: 'NetworkPolicy', metadata: { namespace: SPACE, name }, spec }
}
