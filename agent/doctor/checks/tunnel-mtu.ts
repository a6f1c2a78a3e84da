import { defineCheck, type SeenFault } from '../check.ts'

/** The bytes that a tunnel adds to each packet, by the family of the packets between nodes. */
const OVERHEAD: Readonly<Record<string, { readonly v4: number; readonly v6: number }>> = {
  vxlan: { v4: 50, v6: 70 },
  ipip: { v4: 20, v6: 20 },
  wireguard: { v4: 60, v6: 80 },
}

/** A tunnel takes packets that do not fit into the uplink. */
export const check = defineCheck({
  code: 'DR18',
  title: 'MTU of the tunnel is too large',
  severity: 'error',
  inAgent: 'node',
  isOfNode: true,
  reads: ['agent', 'links'],
  detect({ agent, links }) {
    return links
      .filter(({ name, kind }) => /^flannel/.test(name) && (agent === undefined || kind === agent.backend))
      .flatMap(({ name, mtu, kind, vxlan }): SeenFault[] => {
        const uplink = links.find((one) => one.name === (agent?.uplink?.name ?? vxlan?.lower))
        const overhead = OVERHEAD[kind]
        if (!uplink || !overhead) return []
        const largest = uplink.mtu - (name.includes('-v6') ? overhead.v6 : overhead.v4)
        if (mtu <= largest) return []
        return [
          {
            what: `${name} has MTU ${mtu}, and ${uplink.name} with MTU ${uplink.mtu} leaves room for ${largest}`,
            effect: 'larger packets of pods are lost or come in fragments',
            commands: [`ip link set dev ${name} mtu ${largest}`],
          },
        ]
      })
  },
})
