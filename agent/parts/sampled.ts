import { type LocalPod, type Path, podsOfNode } from '../doctor/promise/paths.ts'
import { decision } from '../policy/view.ts'
import type { Reports } from './inputs.ts'
import type { PartSet } from './make.ts'
import type { NodeReport } from './node-report.ts'
import { Sampling } from './sampling.ts'

/** So much of a container's id tells it from others. */
const ID = 13

/** Makes the sampling of one run, which knows pods and policies by the parts. */
export function makeSampling(
  { dataPath, policy }: Pick<PartSet, 'dataPath' | 'policy'>,
  reports: Pick<Reports, 'failures' | 'log' | 'warn'>,
  report: Pick<NodeReport, 'status' | 'judge' | 'publish'>,
): Sampling {
  return new Sampling({
    ...reports,
    status: () => report.status(),
    pods: () =>
      podsOfNode(dataPath.pods, report.status()).flatMap(({ container, netns, ips }): LocalPod[] =>
        netns === undefined ? [] : [{ name: `pod ${container.slice(0, ID)}`, ips, netns }],
      ),
    passes: (path) => !policy?.answers.isComplete || isAllowed(policy.answers.known(), path),
    changed() {
      report.judge()
      report.publish()
    },
  })
}

function isAllowed(known: Parameters<typeof decision>[0], { from, to }: Path): boolean {
  const asked = { from: from.ip, to: to.ip, protocol: 'ICMP', port: 0 } as const
  return decision(known, asked, () => undefined).verdict.passes
}
