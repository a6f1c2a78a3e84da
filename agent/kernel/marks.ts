import { brief, type NetworkName } from '../../lib/text/values.ts'

/**
 * The protocol number (rt_protos) of all routes, nexthops and neighbours that the agent makes. iproute2's rt_protos
 * file does not list it.
 */
export const PROTO = 112

/** The alias of the devices that an agent makes. */
export function markOf(instance: NetworkName): string {
  return `plumb-agent/${brief(instance)}`
}
