// Made by `npm run tables` from the files in this folder: do not edit.
import type { Check } from '../check.ts'
import { check as dr22 } from './address-twice.ts'
import { check as dr28 } from './bridge-address.ts'
import { check as dr2 } from './bridged-frames.ts'
import { check as dr20 } from './checksums.ts'
import { check as dr36 } from './clock.ts'
import { check as dr48 } from './cluster-dns.ts'
import { check as dr4 } from './connection-table.ts'
import { check as dr32 } from './detour.ts'
import { check as dr37 } from './disk.ts'
import { check as dr49 } from './empty-services.ts'
import { check as dr10 } from './firewalld.ts'
import { check as dr14 } from './foreign-translation.ts'
import { check as dr50 } from './forgotten-dns.ts'
import { check as dr9 } from './forward-drops.ts'
import { check as dr1 } from './forwarding.ts'
import { check as dr55 } from './full-disk.ts'
import { check as dr30 } from './full-pool.ts'
import { check as dr44 } from './host-port-bound.ts'
import { check as dr7 } from './ipv6-settings.ts'
import { check as dr13 } from './kube-proxy.ts'
import { check as dr6 } from './module.ts'
import { check as dr57 } from './narrow-path.ts'
import { check as dr5 } from './neighbour-table.ts'
import { check as dr35 } from './network-files.ts'
import { check as dr34 } from './network-manager.ts'
import { check as dr33 } from './networkd.ts'
import { check as dr41 } from './newer-list.ts'
import { check as dr38 } from './no-network.ts'
import { check as dr29 } from './no-pod-cidr.ts'
import { check as dr8 } from './node-port-range.ts'
import { check as dr16 } from './old-nft.ts'
import { check as dr45 } from './older-mtu.ts'
import { check as dr51 } from './other-backend.ts'
import { check as dr52 } from './other-daemons.ts'
import { check as dr42 } from './other-folders.ts'
import { check as dr39 } from './other-network-first.ts'
import { check as dr21 } from './other-vxlan.ts'
import { check as dr27 } from './overlap.ts'
import { check as dr19 } from './path-mtu.ts'
import { check as dr40 } from './plugins.ts'
import { check as dr43 } from './pod-links.ts'
import { check as dr3 } from './reverse-path.ts'
import { check as dr23 } from './same-address.ts'
import { check as dr31 } from './same-key.ts'
import { check as dr26 } from './same-subnet.ts'
import { check as dr17 } from './silent-peers.ts'
import { check as dr56 } from './slow-tunnel.ts'
import { check as dr46 } from './store.ts'
import { check as dr25 } from './subnet-file.ts'
import { check as dr18 } from './tunnel-mtu.ts'
import { check as dr12 } from './two-firewalls.ts'
import { check as dr11 } from './ufw.ts'
import { check as dr47 } from './unavailable.ts'
import { check as dr15 } from './undone.ts'
import { check as dr54 } from './unknown-objects.ts'
import { check as dr24 } from './uplink-down.ts'
import { check as dr53 } from './versions.ts'

/** All checks of the doctor, by their codes. */
export const CHECKS: readonly Check[] = [
  dr1,
  dr2,
  dr3,
  dr4,
  dr5,
  dr6,
  dr7,
  dr8,
  dr9,
  dr10,
  dr11,
  dr12,
  dr13,
  dr14,
  dr15,
  dr16,
  dr17,
  dr18,
  dr19,
  dr20,
  dr21,
  dr22,
  dr23,
  dr24,
  dr25,
  dr26,
  dr27,
  dr28,
  dr29,
  dr30,
  dr31,
  dr32,
  dr33,
  dr34,
  dr35,
  dr36,
  dr37,
  dr38,
  dr39,
  dr40,
  dr41,
  dr42,
  dr43,
  dr44,
  dr45,
  dr46,
  dr47,
  dr48,
  dr49,
  dr50,
  dr51,
  dr52,
  dr53,
  dr54,
  dr55,
  dr56,
  dr57,
]
