import type { ServiceView } from '../../services/view.ts'
import { defineCheck, type SeenFault } from '../check.ts'
import type { Listening } from '../facts/listeners.ts'
import type { HostPort } from '../facts/pods.ts'

/**
 * A program of the node listens at the host port of a pod: the pod gets what comes from elsewhere (portmap). Or a Service
 * has the same port as its node port: its rules come first.
 */
export const check = defineCheck({
  code: 'DR44',
  title: 'a host port has two users',
  severity: 'error',
  reads: ['pods', 'listeners', 'services'],
  detect({ pods, listeners, services }) {
    return pods.flatMap(({ container, ips, hostPorts }) =>
      hostPorts.flatMap((mapped): SeenFault[] => {
        const pod = `container ${container} (${ips.join(', ')})`
        const place = `${mapped.protocol.toUpperCase()} port ${mapped.port} of this node`
        const service = (services ?? []).find((one) => hasNodePort(one, mapped))
        if (service) {
          const { namespace, name } = service
          const what = `${place} leads to ${pod}, and is the node port of the Service ${namespace}/${name}`
          const effect = 'the Service gets its packets, and the pod none'
          return [{ what, effect, commands: [`kubectl --namespace ${namespace} edit service ${name}`] }]
        }
        const found = listeners.find((one) => isSame(one, mapped))
        if (!found) return []
        const program = found.pid === undefined ? 'a program' : `${found.name} (pid ${found.pid})`
        return [
          {
            what: `${place} leads to ${pod}, and ${program} listens there`,
            effect: `${found.name || 'the program'} does not get packets from other machines`,
            commands: [found.pid === undefined ? `ss -lnp sport = :${mapped.port}` : `kill ${found.pid}`],
          },
        ]
      }),
    )
  },
})

// An address of a view has its protocol: `10.96.0.1:80/TCP`, `[fd00::1]:80/TCP`.
function hasNodePort({ ports }: ServiceView, { protocol, port, ip }: HostPort): boolean {
  const isSix = ip === 'any6' || ip.includes(':')
  return ports.some(
    ({ nodePort, addresses }) =>
      nodePort === port &&
      addresses.some((one) => one.startsWith('[') === isSix && one.endsWith(`/${protocol.toUpperCase()}`)),
  )
}

// A program that listens at the loopback address is for the node alone.
function isSame({ protocol, ip, port }: Listening, mapped: HostPort): boolean {
  if (protocol !== mapped.protocol || port !== mapped.port || /^(127\.|::1$)/.test(ip)) return false
  const isAny = ip === '*' || ip === '::' || ip === '0.0.0.0'
  const family = isAny ? (ip === '0.0.0.0' ? 4 : undefined) : familyOf(ip)
  const other = mapped.ip === 'any4' ? 4 : mapped.ip === 'any6' ? 6 : familyOf(mapped.ip)
  if (family !== undefined && family !== other) return false
  return isAny || mapped.ip.startsWith('any') || mapped.ip === ip
}

function familyOf(ip: string): 4 | 6 {
  return ip.includes(':') ? 6 : 4
}
