import { defineCheck, type SeenFault } from '../check.ts'
import { shellWord } from '../shell.ts'

/** A file of systemd-networkd matches the links of pods. It then asks for addresses there by DHCP. */
export const check = defineCheck({
  code: 'DR35',
  title: 'a .network file matches links of pods',
  severity: 'warning',
  reads: ['processes', 'configurations', 'agent'],
  detect({ processes, configurations, agent }) {
    if (!agent || !processes.some(({ name }) => name === 'systemd-network')) return []
    return configurations.flatMap(({ path, text }): SeenFault[] => {
      if (!path.endsWith('.network')) return []
      const [, match = ''] = /^\[Match\]\n((?:(?!\[).*\n?)*)/m.exec(text) ?? []
      const names = [...match.matchAll(/^\s*Name\s*=\s*(.+)$/gm)].flatMap(([, list = '']) => list.trim().split(/\s+/))
      const isChosen = SAMPLES.some((link) => isChosenBy(names, link))
      const isOff = /^\s*Unmanaged\s*=\s*(yes|true|on|1)\s*$/im.test(text)
      if (names.length === 0 || !isChosen || isOff) return []
      return [
        {
          what: `${path} matches links of pods (Name=${names.join(' ')})`,
          effect: 'systemd-networkd configures links of pods',
          commands: [`sed -i 's/^ *Name *=.*/& !veth* !cni* !flannel*/' ${shellWord(path)}`, 'networkctl reload'],
        },
      ]
    })
  },
})

const SAMPLES = ['veth0123abcd', 'cni0', 'flannel.1']

// Any pattern with ! that matches leaves a link out. Otherwise one without ! must match, when there is one.
function isChosenBy(patterns: readonly string[], link: string): boolean {
  const [out, wanted] = [patterns.filter((one) => one.startsWith('!')), patterns.filter((one) => !one.startsWith('!'))]
  if (out.some((one) => isMatch(one.slice(1), link))) return false
  return wanted.length === 0 || wanted.some((one) => isMatch(one, link))
}

// A pattern of a shell, as in man systemd.network(5).
function isMatch(pattern: string, name: string): boolean {
  const text = pattern
    .replace(/[.+^${}()|\\]/g, '\\$&')
    .replaceAll('*', '.*')
    .replaceAll('?', '.')
  try {
    return new RegExp(`^${text}$`).test(name)
  } catch {
    return false
  }
}
