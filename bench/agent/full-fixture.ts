import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { dumpElements } from '../../agent/kernel/element-dump.ts'
import type { Status } from '../../agent/state/status.ts'
import { BUCKETS } from '../../agent/state/status.ts'
import { inside } from '../../lib/os/netns.ts'
import { setNames } from '../../lib/os/nftables.ts'
import { linesOf } from '../../lib/text/lines.ts'
import { lead, type Place, started } from '../call.ts'
import { bridgeConf, makePlaces, removePlaces } from '../node.ts'
import type { Bench } from '../part.ts'
import { ip } from '../tools.ts'
import type { Command } from './full-node.ts'

const NODE_SCRIPT = join(import.meta.dir, 'full-node.ts')
/** The pods of the node from the start, and the places for more. */
const [PODS, MORE] = [100, 1]
const [POLL_MS, LIMIT_MS] = [20, 120_000]

/** What the agent did while something changed. Times in milliseconds. */
export interface Seen {
  /** The longest step of a part. Where steps ended together, this is the most that it can have been. */
  readonly step: number
  /** The longest time that a question for the status waited. */
  readonly silence: number
  /** From the change until it holds in the kernel. */
  readonly effective: number
}
/** A node with pods, objects and connections, and an agent that runs. */
export interface FullNode {
  /** Gives a command to the API server and the kernel of the node, and what it answers. */
  ask(command: Command): Promise<number>
  /** The status of the agent. */
  status(): Promise<Status>
  /** Looks at the agent while something happens. The answer of `change` is the time until it holds. */
  watch(change: () => Promise<number>): Promise<Seen>
  /** Runs the plugin for one pod more. Gives the milliseconds. */
  call(verb: 'ADD' | 'DEL', pod: string): Promise<number>
  /** Ends the agent by SIGTERM, or starts it. */
  stop(): Promise<void>
  start(): void
  /** Elements in the agent's tables. */
  elements(): number
  close(): Promise<void>
}

/** Waits until something holds. Throws Error after two minutes. */
export async function until(what: string, holds: () => Promise<boolean>, pollMs = POLL_MS): Promise<void> {
  for (const end = performance.now() + LIMIT_MS; !(await holds()); await Bun.sleep(pollMs))
    if (performance.now() > end) throw new Error(`The full node of the bench waits in vain: ${what}`)
}

/** Opens the node, starts the agent, and adds the pods. */
export async function openFullNode(bench: Bench): Promise<FullNode> {
  const dir = bench.dataDir()
  const names = Array.from({ length: PODS + MORE }, (_, n) => `full-pod${n}`)
  const [node, ...pods] = makePlaces(['full', ...names]) as [Place, ...Place[]]
  inside(node, () => {
    ip([
      'link add eth0 up type veth peer name peer',
      'link set peer up',
      'addr add 192.168.77.1/24 dev eth0',
      'route add default via 192.168.77.2',
    ])
    for (const name of ['ipv4/ip_forward', 'bridge/bridge-nf-call-iptables'])
      writeFileSync(`/proc/sys/net/${name}`, '1')
  })
  for (const name of ['store', 'run']) mkdirSync(join(dir, name))
  writeFileSync(
    join(dir, 'store/config'),
    JSON.stringify({
      Network: '10.244.0.0/16',
      SubnetMin: '10.244.1.0',
      SubnetMax: '10.244.1.0',
      Backend: { Type: 'host-gw' },
    }),
  )
  const [socket, policySocket] = [join(dir, 'agent.sock'), join(dir, 'policy.sock')]
  const options = {
    store: 'file',
    'file-store-dir': join(dir, 'store'),
    'node-name': 'n1',
    'subnet-file': join(dir, 'subnet.env'),
    'state-dir': join(dir, 'state'),
    socket,
    'policy-socket': policySocket,
    'status-address': 'off',
    'service-proxy': 'kubernetes',
    'network-policy': 'kubernetes',
    'kube-api-url': 'http://127.0.0.1:6443',
  }
  const argv = [
    join(import.meta.dir, '../../dist/plumb'),
    'agent',
    ...Object.entries(options).map(([name, value]) => `--${name}=${value}`),
  ]
  const conf = {
    ...bridgeConf(join(dir, 'pool'), false),
    ipam: {
      type: 'host-local',
      dataDir: join(dir, 'pool'),
      ranges: [[{ subnet: '10.244.1.0/24' }]],
      routes: [{ dst: '0.0.0.0/0' }],
    },
    policy: { socket: policySocket, whenAway: 'wait' },
  }
  lead(join(dir, 'run'))

  const fixture = inside(node, () =>
    Bun.spawn([process.execPath, NODE_SCRIPT], { stdin: 'pipe', stdout: 'pipe', stderr: 'inherit' }),
  )
  const lines = linesOf(fixture.stdout)
  const next = async () => String((await lines.next()).value ?? '')
  const ask = async (command: Command) => {
    fixture.stdin.write(`${JSON.stringify(command)}\n`)
    fixture.stdin.flush()
    const answer = await next()
    if (answer === '') throw new Error(`the full node of the bench did not do ${JSON.stringify(command)}`)
    return Number(answer)
  }
  let agent: Bun.Subprocess | undefined
  const log = join(dir, 'log')
  const start = () => {
    agent = inside(node, () =>
      Bun.spawn(argv, {
        stdin: 'ignore',
        stdout: 'ignore',
        stderr: Bun.file(log),
        env: { PATH: '/usr/sbin:/usr/bin:/sbin:/bin' },
      }),
    )
  }
  const status = async () => (await (await fetch('http://agent/status', { unix: socket })).json()) as Status
  const call = async (verb: 'ADD' | 'DEL', pod: string, place = pods[PODS] as Place) => {
    const {
      argv: plugin,
      env,
      stdin,
    } = started(
      {
        side: bench.ours,
        type: 'bridge',
        pod: place,
        conf,
        args: `IgnoreUnknown=1;K8S_POD_NAMESPACE=x;K8S_POD_NAME=${pod}`,
      },
      verb,
      pod,
    )
    const began = performance.now()
    const child = inside(node, () => Bun.spawn(plugin, { env, stdin, stdout: 'pipe', stderr: 'pipe', cwd: '/' }))
    const code = await child.exited
    const ms = performance.now() - began
    if (code !== 0) throw new Error(`bridge ${verb} of ${pod} failed: ${await new Response(child.stdout).text()}`)
    return ms
  }
  const close = async () => {
    agent?.kill('SIGKILL')
    fixture.kill('SIGKILL')
    await Promise.all([agent?.exited, fixture.exited])
    removePlaces([node, ...pods])
  }
  try {
    if ((await next()) !== 'ready') throw new Error('the API server of the bench did not start')
    start()
    await until('the agent', async () => {
      if (agent?.exitCode !== null)
        throw new Error(`the agent of the bench ended: ${readFileSync(log, 'utf8').slice(-2000)}`)
      const now = await status().catch(() => undefined)
      return now?.ready === true && now.services !== undefined && now.policy !== undefined
    })
    for (let n = 0; n < PODS; n++) await call('ADD', `l${n}`, pods[n])
  } catch (cause) {
    await close()
    throw cause
  }
  return {
    ask,
    status,
    call: (verb, pod) => call(verb, pod),
    start,
    close,
    async stop() {
      agent?.kill()
      await agent?.exited
    },
    async watch(change) {
      let [isOver, step, silence] = [false, 0, 0]
      let before = (await status().catch(() => undefined))?.steps
      const looking = (async () => {
        for (; !isOver; await Bun.sleep(POLL_MS)) {
          const asked = performance.now()
          const now = (await status().catch(() => undefined))?.steps
          if (!now) {
            // The agent is away. Its next run counts from 0.
            before = undefined
            continue
          }
          silence = Math.max(silence, performance.now() - asked)
          step = Math.max(step, longest(before, now))
          before = now
        }
      })()
      const effective = await change().finally(() => {
        isOver = true
      })
      await looking
      return { step, silence, effective }
    },
    elements: () =>
      inside(node, () => {
        const count = (table: string) =>
          setNames('inet', table).reduce((sum, set) => sum + dumpElements(table, set).size, 0)
        return count('plumb_services') + count('plumb_policy')
      }),
  }
}

// The most that one of the steps between two looks can have taken, in milliseconds.
function longest(before: Status['steps'] | undefined, now: Status['steps']): number {
  const count = now.count - (before?.count ?? 0)
  if (count === 0) return 0
  const sum = now.sum - (before?.sum ?? 0)
  // The first bound that none of them passed.
  const bound = BUCKETS.find((_, i) => (now.buckets[i] ?? 0) - (before?.buckets[i] ?? 0) === count)
  return Math.min(sum, bound ?? Number.POSITIVE_INFINITY) * 1000
}
