import type { Plugin } from '../../lib/cni/plugin.ts'
import bandwidth from '../../plugins/bandwidth.ts'
import bridge from '../../plugins/bridge.ts'
import dhcp from '../../plugins/dhcp.ts'
import dummy from '../../plugins/dummy.ts'
import firewall from '../../plugins/firewall.ts'
import flannel from '../../plugins/flannel.ts'
import hostDevice from '../../plugins/host-device.ts'
import hostLocal from '../../plugins/host-local.ts'
import ipvlan from '../../plugins/ipvlan.ts'
import loopback from '../../plugins/loopback.ts'
import macvlan from '../../plugins/macvlan.ts'
import minicni from '../../plugins/minicni.ts'
import policy from '../../plugins/policy.ts'
import portmap from '../../plugins/portmap.ts'
import ptp from '../../plugins/ptp.ts'
import sbr from '../../plugins/sbr.ts'
import staticPool from '../../plugins/static.ts'
import tap from '../../plugins/tap.ts'
import tuning from '../../plugins/tuning.ts'
import vlan from '../../plugins/vlan.ts'
import vrf from '../../plugins/vrf.ts'

/** Every plugin by its type. */
export const PLUGINS: Readonly<Record<string, Plugin>> = {
  bridge,
  ptp,
  minicni,
  flannel,
  'host-device': hostDevice,
  'host-local': hostLocal,
  static: staticPool,
  loopback,
  portmap,
  dhcp,
  tuning,
  sbr,
  vrf,
  firewall,
  bandwidth,
  policy,
  macvlan,
  ipvlan,
  vlan,
  dummy,
  tap,
}
