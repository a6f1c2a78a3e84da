import { defineCheck, type SeenFault } from '../check.ts'
import { shellWord } from '../shell.ts'

/** The runtime takes networks or plugins from other folders. k3s, microk8s and k0s have folders of their own. */
export const check = defineCheck({
  code: 'DR42',
  title: 'the runtime reads other folders',
  severity: 'error',
  reads: ['runtimes', 'lists'],
  detect({ runtimes, lists: { dir, files, binDirs } }) {
    const [first] = files
    if (!first?.list) return []
    const { path, list } = first
    return runtimes.flatMap(({ name, pid, confDir, binDirs: read, networks }): SeenFault[] => {
      const who = `${name} (pid ${pid})`
      const effect = `pods are not in the network ${list.name}`
      const isElsewhere = confDir !== dir && !networks.includes(list.name)
      const [bin = ''] = read
      const folders: SeenFault[] = isElsewhere
        ? [
            {
              what: `${who} takes networks from ${confDir}, and ${path} is not there`,
              effect,
              commands: [`mkdir -p ${shellWord(confDir)}`, `ln -s ${shellWord(path)} ${shellWord(`${confDir}/`)}`],
            },
          ]
        : []
      const isShared = read.some((one) => binDirs.includes(one))
      return [
        ...folders,
        ...(isShared
          ? []
          : [
              {
                what: `${who} looks for plugins in ${read.join(' and ')}, not in ${binDirs.join(' or ')}`,
                effect,
                commands: [`plumb install --bin-dir ${shellWord(bin)}`],
              },
            ]),
      ]
    })
  },
})
