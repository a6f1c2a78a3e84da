import { defineCheck, type SeenFault } from '../check.ts'
import { shellWord } from '../shell.ts'

/** The kernel does not make a second VXLAN device with one VNI and one port. So the agent cannot make its own. */
export const check = defineCheck({
  code: 'DR21',
  title: 'another VXLAN device has our VNI',
  severity: 'error',
  reads: ['links', 'status'],
  detect({ links, status }) {
    if (status?.backend !== 'vxlan') return []
    // The agent names the device that it cannot make.
    const wanted = new Map(
      status.reasons
        .flatMap((text) => [...text.matchAll(/\b(flannel(?:-v6)?\.(\d+))\b/g)])
        .map(([, name = '', vni]) => [name, Number(vni)]),
    )
    const isOurs = (name: string) => /^flannel(-v6)?\.\d+$/.test(name)
    return [...wanted].flatMap(([own, vni]): SeenFault[] => {
      if (links.some(({ name }) => name === own)) return []
      return links
        .filter(({ name, vxlan }) => !isOurs(name) && vxlan?.vni === vni)
        .map(({ name, vxlan }) => ({
          what: `The VXLAN device ${name} has the VNI ${vni} of ${own}, at UDP port ${vxlan?.port}`,
          effect: `the agent cannot make ${own}, and pods reach only this node`,
          commands: [`ip link delete dev ${shellWord(name)}`],
        }))
    })
  },
})
