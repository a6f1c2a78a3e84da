// `plumb demo` tells stories in private namespaces: pods on one node, and a cluster of three nodes.
// Begin with `tell` below. pods.ts and nodes.ts have the steps of the two stories.
import { log } from '../../lib/os/log.ts'
import { print, write } from '../output.ts'
import { StepError, stepsDone } from './screen.ts'
import type { Story } from './wish.ts'

const LIMIT_MS = 60_000

/**
 * Tells a whole story in the private namespaces of this process, and returns the exit status. A failed step ends the story. The screen and
 * stderr name that step.
 */
export async function tell(story: Story): Promise<0 | 1> {
  const started = performance.now()
  const late = setTimeout(() => {
    write(`\nplumb demo: FAILED: not done after ${LIMIT_MS / 1000} s\n`)
    process.exit(1)
  }, LIMIT_MS)
  try {
    if (story.name === 'pods') await (await import('./pods.ts')).tellPods()
    else await (await import('./nodes.ts')).tellNodes(story.store ?? 'file')
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
