import * as v from 'valibot'
import { definePlugin } from '../lib/cni/plugin.ts'
import { networkOf } from '../lib/text/cidr.ts'
import { shown, ValueError } from '../lib/text/errors.ts'
import { type Cidr, parseCidr, split } from '../lib/text/ip.ts'
import { common, field } from '../lib/text/shape.ts'
import { type IfName, parse } from '../lib/text/values.ts'

const conf = v.object({
  ...common,
  bridge: v.optional(
    field.by((text) => (text === '' ? ('minicni0' as IfName) : parse.ifname(text))),
    'minicni0',
  ),
  mtu: v.optional(field.int(0, 65535), 1500),
  subnet: v.optional(field.by(readSubnet)),
  runtimeConfig: v.optional(v.looseObject({}), {}),
})
type Conf = v.InferOutput<typeof conf>

/**
 * The plugin `minicni` of the tutorial minicni, with the same configuration. The bridge has the subnet's first address.
 * Each pod has one of the other addresses.
 */
export default definePlugin<Conf>({
  role: 'delegating',
  to: 'bridge',
  about:
    'CNI plugin minicni: a veth pair from the container to a bridge, with an address of the one subnet of this node',
  conf: field.whole(conf, ({ subnet }) => {
    if (subnet === undefined)
      throw new ValueError(
        "Cannot read subnet: it is missing; want the network of this node's pods, such as 10.244.0.0/24",
      )
  }),
  translate: ({ bridge, mtu, subnet }) => ({
    bridge,
    mtu,
    isDefaultGateway: true,
    ipam: { type: 'host-local', subnet },
  }),
})

// Checks the subnet as host-local does, so that an error names this plugin's key.
function readSubnet(text: unknown): Cidr {
  const subnet = parseCidr(text)
  const { family, length } = split(subnet)
  if (networkOf(subnet) !== subnet)
    throw new ValueError(`${shown(text)}: want a network without host bits, here ${networkOf(subnet)}`)
  const longest = family === 4 ? 30 : 126
  if (length > longest) throw new ValueError(`${shown(text)}: want a /${longest} or wider, for a gateway and a pod`)
  return subnet
}
