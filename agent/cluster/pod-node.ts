import { log } from '../../lib/os/log.ts'
import { ValueError } from '../../lib/text/errors.ts'
import { UnavailableError } from '../scheduler/follow.ts'
import { delays, pause } from '../scheduler/pause.ts'
import type { Api } from './api.ts'

const [LEAST_MS, MOST_MS] = [100, 4000]

/**
 * The name of the node that a pod runs on, found as in flannel (`POD_NAME`, `POD_NAMESPACE`). Waits while the API does
 * not answer, and logs each reason once. Throws ValueError for a pod without a node.
 */
export async function nodeOfPod(
  api: Api,
  { name, namespace }: { readonly name: string; readonly namespace: string },
  signal: AbortSignal,
): Promise<string> {
  const path = `/api/v1/namespaces/${encodeURIComponent(namespace)}/pods/${encodeURIComponent(name)}`
  let logged = ''
  for (const ms of delays(LEAST_MS, MOST_MS)) {
    signal.throwIfAborted()
    try {
      const pod = (await api.get(path, signal)) as { spec?: { nodeName?: unknown } } | undefined
      const node = pod?.spec?.nodeName
      if (typeof node === 'string' && node !== '') return node
      const why = `the cluster has no pod ${namespace}/${name} that is on a node`
      throw new ValueError(`Cannot find this node's name: ${why}; want NODE_NAME, or --node-name`)
    } catch (cause) {
      if (!(cause instanceof UnavailableError)) throw cause
      if (cause.message !== logged) log(`agent: waiting for this node's name: ${cause.message}`)
      logged = cause.message
    }
    await pause(ms, signal)
  }
  return ''
}
