import { defineCheck } from '../check.ts'

const FILE = '/etc/NetworkManager/conf.d/90-plumb.conf'
/** The links of pods and of the agent, as NetworkManager names them. */
const LINKS = ['interface-name:veth*', 'interface-name:cni*', 'interface-name:flannel*'] as const

/** NetworkManager takes links of pods for its own, and may set them down or give them addresses. */
export const check = defineCheck({
  code: 'DR34',
  title: 'NetworkManager manages links of pods',
  severity: 'warning',
  reads: ['processes', 'configurations', 'agent'],
  detect({ processes, configurations, agent }) {
    if (!agent || !processes.some(({ name }) => name === 'NetworkManager')) return []
    const texts = configurations.filter(({ path }) => path.includes('/NetworkManager/')).map(({ text }) => text)
    const named = texts.flatMap((text) =>
      [...text.matchAll(/^\s*unmanaged-devices\s*\+?=\s*(.+)$/gm)].map(([, list = '']) => list),
    )
    const missing = LINKS.filter(
      (link) =>
        !named.some((list) =>
          list
            .split(/[;,]/)
            .map((one) => one.trim())
            .includes(link),
        ),
    )
    if (missing.length === 0) return []
    return [
      {
        what: `NetworkManager runs, and no unmanaged-devices names ${missing.join(', ')}`,
        effect: 'it may set links of pods down, or give them addresses',
        commands: [
          `printf '[keyfile]\\nunmanaged-devices+=${LINKS.join(';')}\\n' >${FILE}`,
          'systemctl reload NetworkManager',
        ],
      },
    ]
  },
})
