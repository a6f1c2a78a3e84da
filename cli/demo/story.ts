// `plumb demo` tells stories in private namespaces: pods on one node, NetworkPolicy, nodes with agents, BGP, Kubernetes.
// Begin with `play` below. pods.ts, policy.ts, nodes.ts, bgp.ts and kubernetes.ts have the steps of the stories.
import { log } from '../../lib/os/log.ts'
import { print, write } from '../output.ts'
import { StepError, stepsDone } from './screen.ts'
import type { Story } from './wish.ts'

/** Kubernetes starts its programs and its containers, which takes its time on a busy machine. */
const LIMIT_MS = {
  pods: 60_000,
  policy: 60_000,
  nodes: 60_000,
  services: 60_000,
  bgp: 120_000,
  kubernetes: 400_000,
} as const

/**
 * Tells a whole story in the private namespaces of this process, and returns the exit status. A failed step ends the
 * story. The screen and stderr name that step.
 */
export async function play(story: Story): Promise<0 | 1> {
  const started = performance.now()
  const late = setTimeout(() => {
    write(`\nplumb demo: FAILED: not done after ${LIMIT_MS[story.name] / 1000} s\n`)
    process.exit(1)
  }, LIMIT_MS[story.name])
  try {
    if (story.name === 'pods') await (await import('./pods.ts')).playPods()
    else if (story.name === 'services') await (await import('./services.ts')).playServices()
    else if (story.name === 'bgp') await (await import('./bgp.ts')).playBgp()
    else if (story.name === 'policy') await (await import('./policy.ts')).playPolicy()
    else if (story.name === 'kubernetes') await (await import('./kubernetes.ts')).playKubernetes()
    else await (await import('./nodes.ts')).playNodes(story.store ?? 'file')
    print(`\n${stepsDone()} steps, each as it says, in ${((performance.now() - started) / 1000).toFixed(1)} s`)
    return 0
  } catch (cause) {
    if (!(cause instanceof StepError)) throw cause
    log(`plumb demo: FAILED at "${cause.message}", see above; what it made ends with its namespaces`)
    return 1
  } finally {
    clearTimeout(late)
  }
}
