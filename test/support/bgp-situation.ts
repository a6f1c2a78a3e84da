import type { Situation } from '../../agent/bgp/bird-conf.ts'
import { parseBgp } from '../../agent/bgp/configuration.ts'
import type { Lease } from '../../agent/lease/lease.ts'
import type { Cidr, Ip } from '../../lib/text/ip.ts'

/** The file that the configuration of BGP is read from. */
export const FILE = '/etc/plumb/bgp.yaml'
/** The lease of a node by its number. */
export const lease = (n: number, more: Partial<Lease> = {}): Lease => ({
  node: `n${n}`,
  subnets: { v4: `10.244.${n}.0/24` as Cidr },
  ips: { v4: `172.30.0.${n}` as Ip },
  backend: 'host-gw',
  data: {},
  ...more,
})
/** What bird.conf is made of, for the second of three nodes with this configuration. */
export const situation = (yaml: string, more: Partial<Situation> = {}): Situation => ({
  conf: parseBgp(FILE, yaml),
  node: 'n2',
  subnets: { v4: '10.244.2.0/24' as Cidr },
  ips: { v4: '172.30.0.2' as Ip },
  seenAs: {},
  others: [lease(1), lease(2), lease(3)],
  networks: ['10.244.0.0/16' as Cidr],
  isOnLink: () => true,
  labelsOf: () => undefined,
  addresses: [],
  passwords: new Map(),
  logFile: '/run/plumb/bird/bird.log',
  ...more,
})
