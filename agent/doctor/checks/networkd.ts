import { defineCheck, type SeenFault } from '../check.ts'

const DROP_IN = '/etc/systemd/networkd.conf.d/90-plumb.conf'
const KEYS = ['ManageForeignRoutes', 'ManageForeignRoutingPolicyRules'] as const

/** systemd-networkd deletes routes and rules of other programs at its start (man networkd.conf(5), default yes). */
export const check = defineCheck({
  code: 'DR33',
  title: 'systemd-networkd deletes routes of pods',
  severity: 'warning',
  reads: ['processes', 'configurations', 'agent'],
  detect({ processes, configurations, agent }) {
    const runs = processes.some(({ name }) => name === 'systemd-network')
    if (!runs || !agent) return []
    const seen = KEYS.filter((key) => !isNo(lastOf(configurations, key)))
    if (seen.length === 0) return []
    const text = ['[Network]', ...KEYS.map((key) => `${key}=no`)].join('\\n')
    const finding: SeenFault = {
      what: `systemd-networkd runs with ${seen.map((key) => `${key}=yes`).join(' and ')}`,
      effect: 'each of its restarts deletes routes of pods, until the agent puts them back',
      commands: [
        'mkdir -p /etc/systemd/networkd.conf.d',
        `printf '${text}\\n' >${DROP_IN}`,
        'systemctl restart systemd-networkd',
      ],
    }
    return [finding]
  },
})

// Later files win (man systemd.syntax(7)). The files are in their order.
function lastOf(files: readonly { readonly path: string; readonly text: string }[], key: string): string | undefined {
  const of = files.filter(({ path }) => /\/networkd\.conf(\.d\/|$)/.test(path))
  return of
    .flatMap(({ text }) => [...text.matchAll(new RegExp(`^\\s*${key}\\s*=\\s*(\\S+)`, 'gm'))].map(([, value]) => value))
    .at(-1)
}

function isNo(value: string | undefined): boolean {
  return value !== undefined && /^(no|false|off|0)$/i.test(value)
}
