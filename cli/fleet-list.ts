import { existsSync } from 'node:fs'
import { homedir } from 'node:os'
import { join } from 'node:path'
import { accessOf, podNamespace } from '../agent/cluster/access.ts'
import { Api } from '../agent/cluster/api.ts'
import { readToken } from '../agent/http/guard.ts'
import { ValueError } from '../lib/text/errors.ts'
import { version } from '../package.json'
import { clusterTargets } from './fleet/cluster.ts'
import { type Targets, targetsOf } from './fleet/target.ts'
import type { Given } from './options.ts'

/**
 * The agents of a fleet by the options of a command, as something that lists them. Undefined when no option names a
 * fleet. Throws ValueError for options that do not go together, and for an unusable file.
 */
export function listOf(
  values: Given['values'],
  command: string,
): ((signal: AbortSignal) => Promise<Targets>) | undefined {
  const { agents, context, socket } = values
  const kubeconfig = values.kubeconfig ?? (context === undefined ? undefined : defaultKubeconfig())
  const tokenFile = values['token-file']
  if (tokenFile !== undefined && agents === undefined)
    throw new ValueError(`${command} takes --token-file with --agents only; see ${command} --help`)
  if ([agents, kubeconfig, socket].filter((one) => one !== undefined).length > 1)
    throw new ValueError(`${command} takes one of --agents, --kubeconfig and --socket; see ${command} --help`)
  if (agents !== undefined) {
    const all = targetsOf(agents, tokenFile === undefined ? undefined : readToken(tokenFile))
    return async () => ({ all })
  }
  if (kubeconfig === undefined) return undefined
  const access = accessOf({ kubeconfig, ...(context !== undefined && { context }) })
  const api = new Api(access, `${command.replace(' ', '-')}/${version}`)
  return (signal) => clusterTargets(api, signal)
}

/**
 * The agents of the cluster that this pod runs in, by its service account: those of its namespace. Undefined outside of a
 * pod, and where kubectl would take a kubeconfig. Throws ValueError.
 */
export function listOfPod(command: string): ((signal: AbortSignal) => Promise<Targets>) | undefined {
  const isPod = process.env['KUBERNETES_SERVICE_HOST'] !== undefined
  if (!isPod || process.env['KUBECONFIG'] || existsSync(defaultKubeconfig())) return undefined
  const api = new Api(accessOf({}), `${command.replace(' ', '-')}/${version}`)
  const namespace = podNamespace()
  return (signal) => clusterTargets(api, signal, namespace)
}

/** The kubeconfig that kubectl would take: the first file of `KUBECONFIG`, else `~/.kube/config`. */
export function defaultKubeconfig(): string {
  return (process.env['KUBECONFIG'] ?? '').split(':').find(Boolean) ?? join(homedir(), '.kube/config')
}
