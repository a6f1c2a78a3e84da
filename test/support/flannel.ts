import { mkdirSync, mkdtempSync, renameSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import type { Namespace } from './harness.ts'
import { type Conf, containerId } from './network.ts'

let serial = 0

/** subnet.env as flannel 0.28 writes it, for each of the stacks that there are. */
export const ENV = {
  v4: `FLANNEL_NETWORK=10.1.0.0/16
FLANNEL_SUBNET=10.1.17.1/24
FLANNEL_MTU=1472
FLANNEL_IPMASQ=true
`,
  'two networks': `FLANNEL_NETWORK=10.1.0.0/16,192.168.0.0/16,10.1.0.0/16
FLANNEL_SUBNET=10.1.17.1/24
FLANNEL_MTU=1472
FLANNEL_IPMASQ=true
`,
  v6: `FLANNEL_IPV6_NETWORK=fc00::/48
FLANNEL_IPV6_SUBNET=fc00::1/64
FLANNEL_MTU=1472
FLANNEL_IPMASQ=true
`,
  dual: `FLANNEL_NETWORK=10.1.0.0/16
FLANNEL_SUBNET=10.1.17.1/24
FLANNEL_IPV6_NETWORK=fc00::/48
FLANNEL_IPV6_SUBNET=fc00::1/64
FLANNEL_MTU=1472
FLANNEL_IPMASQ=false
`,
} as const

/** A subnet.env in a directory of its own. */
export function subnetFile(text: string): string {
  const path = join(mkdtempSync('/run/env-'), 'subnet.env')
  writeEnv(path, text)
  return path
}

/** Puts it in place in one step, as the agent does. */
export function writeEnv(path: string, text: string): void {
  mkdirSync(dirname(path), { recursive: true })
  writeFileSync(`${path}.new`, text)
  renameSync(`${path}.new`, path)
}

/** A configuration of `flannel` over the bridge br0, its state and addresses in directories of its own. */
export function flannelConf(
  env: string,
  keys: object = {},
): Conf & { readonly dataDir: string; readonly subnetFile: string } {
  return {
    cniVersion: '1.1.0',
    name: `flannel${++serial}`,
    type: 'flannel',
    subnetFile: subnetFile(env),
    dataDir: mkdtempSync('/run/flannel-'),
    delegate: { bridge: 'br0', isDefaultGateway: true },
    ipam: { dataDir: mkdtempSync('/run/ipam-') },
    ...keys,
  }
}

/** Its state's folder. */
export function dirOf(conf: Conf): string {
  return conf['dataDir'] as string
}

/** Where what ADD asked for a namespace's eth0 is kept. */
export function fileOf(conf: Conf, pod: Namespace): string {
  return `${dirOf(conf)}/${containerId(pod)}:eth0`
}
