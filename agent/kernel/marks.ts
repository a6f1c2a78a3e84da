import { brief, type NetworkName } from '../../lib/text/values.ts'

/** rt_protos number of all routes, nexthops and neighbours that the agent makes: not in iproute2's rt_protos. */
export const PROTO = 112

/** The alias of the devices that an agent made. */
export function markOf(instance: NetworkName): string {
  return `plumb-agent/${brief(instance)}`
}
