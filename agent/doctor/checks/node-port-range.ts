import { defineCheck } from '../check.ts'

/** kube-apiserver's default of --service-node-port-range. */
const [FIRST, LAST] = [30_000, 32_767]

/** A program's own connection may take a port from the range of NodePorts, when the kernel chooses it there. */
export const check = defineCheck({
  code: 'DR8',
  title: 'node ports overlap the local ports',
  severity: 'warning',
  reads: ['sysctl', 'agent'],
  detect({ sysctl, agent }) {
    if (!agent?.services) return []
    const range = sysctl('ipv4/ip_local_port_range') ?? ''
    const [first = 0, last = 0] = range.split(/\s+/).map(Number)
    if (first > LAST || last < FIRST) return []
    const reserved = sysctl('ipv4/ip_local_reserved_ports') ?? ''
    if (reserved.split(',').some((one) => covers(one))) return []
    const name = 'net.ipv4.ip_local_reserved_ports'
    const wanted = [reserved, `${FIRST}-${LAST}`].filter((one) => one !== '').join(',')
    return [
      {
        what: `net.ipv4.ip_local_port_range is ${range.replace(/\s+/, ' ')}, and node ports are ${FIRST}-${LAST}`,
        effect: 'a program of the node may take the port of a Service for its own connection',
        commands: [`sysctl -w ${name}=${wanted}`, `echo '${name} = ${wanted}' >/etc/sysctl.d/90-plumb-ports.conf`],
      },
    ]
  },
})

function covers(range: string): boolean {
  const [first = Number.NaN, last = first] = range.split('-').map(Number)
  return first <= FIRST && last >= LAST
}
