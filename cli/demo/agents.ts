import type { Status } from '../../agent/state/status.ts'
import { NODES } from './cluster.ts'
import { exec, must } from './exec.ts'
import { type Running, startLogged, until } from './running.ts'
import type { Store } from './stores.ts'

const LIMIT_MS = 10_000

/** The running agent of a node. */
export interface Agent extends Running {
  readonly node: string
}

/** What agents are started with, besides the usual: options, and the nodes when it is not all. */
export interface Choice {
  readonly more?: readonly string[]
  readonly nodes?: readonly string[]
}

/**
 * Starts `plumb agent` on every node, and waits until each agent is ready. A ready agent has all other nodes as peers
 * with this backend. Throws Error with the agent's reasons and the end of its log.
 */
export async function startAgents(
  store: Store,
  backend: string,
  { more = [], nodes = NODES.map(({ node }) => node) }: Choice = {},
): Promise<readonly Agent[]> {
  const agents = nodes.map((node) => ({
    node,
    ...startLogged([process.execPath, 'agent', ...options(node, store), ...more], { node }),
  }))
  await Promise.all(agents.map((agent) => ready(agent, backend)))
  return agents
}

/** Ends agents with SIGTERM, as systemd does, and checks that their exit status is 0. Throws Error. */
export async function stopAgents(agents: readonly Agent[]): Promise<void> {
  for (const { child } of agents) child.kill('SIGTERM')
  for (const { node, child, said } of agents)
    if ((await child.exited) !== 0) throw new Error(`the agent of ${node} ended with ${child.exitCode}:\n${said()}`)
}

/** Runs `plumb status` on a node. Returns undefined when no agent answers there. */
export async function statusOf(node: string): Promise<Status | undefined> {
  const { status, stdout } = await exec([process.execPath, 'status', '--json'], { node })
  return status === 2 ? undefined : JSON.parse(stdout)
}

/** Runs `plumb agent cleanup` on every node, with the options that its agent had. Throws Error. */
export async function cleanup(store: Store, more: readonly string[] = []): Promise<void> {
  await Promise.all(
    NODES.map(({ node }) => must([process.execPath, 'agent', 'cleanup', ...options(node, store), ...more], { node })),
  )
}

function options(node: string, { options }: Store): string[] {
  return ['--node-name', node, '--ip-masq', '--state-dir', '/run/plumb/state', ...options]
}

async function ready({ node, child, said }: Agent, backend: string): Promise<void> {
  let last: Status | undefined
  await until(
    async () => {
      last = await statusOf(node)
      if (child.exitCode !== null) throw new Error(`the agent of ${node} ended with ${child.exitCode}:\n${said()}`)
      const reached = last?.peers.filter((peer) => peer.backend === backend && peer.problem === undefined)
      return (last?.ready && last.backend === backend && reached?.length === NODES.length - 1) || undefined
    },
    LIMIT_MS,
    () => {
      const why = last && ([...last.reasons, ...last.degraded].join('; ') || `${last.peers.length} peers`)
      const log = said().trimEnd().split('\n').slice(-8).join('\n')
      return `the agent of ${node} is not ready: ${why ?? 'it answers nothing'}\n${log}`
    },
  )
}
