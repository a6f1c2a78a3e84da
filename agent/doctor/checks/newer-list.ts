import { defineCheck, type SeenFault } from '../check.ts'
import { shellWord } from '../shell.ts'

/**
 * The newest version of CNI that a runtime reads, by its own version. Sources: go.mod of containerd and of CRI-O
 * (libcni 0.8: 0.4.0, 1.0: 1.0.0, 1.2: 1.1.0).
 */
const NEWEST: Readonly<Record<string, readonly (readonly [from: string, cni: string])[]>> = {
  containerd: [
    ['2.0', '1.1.0'],
    ['1.6', '1.0.0'],
    ['0.0', '0.4.0'],
  ],
  crio: [
    ['1.31', '1.1.0'],
    ['1.23', '1.0.0'],
    ['0.0', '0.4.0'],
  ],
}

/** A network has a version of CNI that the runtime does not know. */
export const check = defineCheck({
  code: 'DR41',
  title: 'the network is newer than the runtime',
  severity: 'error',
  reads: ['runtimes', 'lists'],
  detect({ runtimes, lists: { files } }) {
    const [first] = files
    const { list, path } = first ?? {}
    if (!list || path === undefined) return []
    return runtimes.flatMap(({ name, pid, version }): SeenFault[] => {
      const newest = NEWEST[name]?.find(([from]) => version !== '' && compare(version, from) >= 0)?.[1]
      if (newest === undefined || compare(list.cniVersion, newest) <= 0) return []
      return [
        {
          what: `${path} has cniVersion ${list.cniVersion}, and ${name} ${version} (pid ${pid}) reads ${newest} at most`,
          effect: 'it refuses what the plugins answer, and no pod starts',
          commands: [`sed -i 's/"cniVersion": *"${list.cniVersion}"/"cniVersion": "${newest}"/' ${shellWord(path)}`],
        },
      ]
    })
  },
})

function compare(one: string, other: string): number {
  const [a, b] = [one, other].map((text) => text.split('.').map(Number))
  for (let i = 0; i < 3; i++) {
    const difference = (a?.[i] ?? 0) - (b?.[i] ?? 0)
    if (difference !== 0) return difference
  }
  return 0
}
