import { spawnSync } from 'node:child_process'
import { skip } from './skip.ts'

const NEEDS_MASTER = ['macvlan', 'ipvlan', 'vlan']
const MASTER = 'ip link add m0 type veth peer name m1;'
const OWN: Readonly<Record<string, string>> = { vlan: 'type vlan id 5', dummy: 'type dummy', vrf: 'type vrf table 10' }

/** Whether this kernel has a kind of link, tried in a namespace of its own. */
export function hasKind(kind: string): boolean {
  const script = `${MASTER} ip link add x0 ${NEEDS_MASTER.includes(kind) ? 'link m0 ' : ''}${OWN[kind] ?? `type ${kind}`}`
  return spawnSync('unshare', ['--net', 'sh', '-ec', script]).status === 0
}

/** Skips the running test, or from a `before` hook its suite, where the kernel lacks a kind of link. */
export function needsKind(test: Mocha.Context, kind: string): void {
  if (!hasKind(kind)) skip(test, `this kernel has no ${kind}`)
}

/** Skips the running test where two pods of a network with these plugins cannot be. */
export function needsTwo(test: Mocha.Context, types: readonly string[]): void {
  for (const kind of lackingKinds(types)) needsKind(test, kind)
  if (types.includes('vlan')) skip(test, 'a link has each of its VLANs once: there is no second pod')
}

/** The kinds of link that a network's plugins make and this kernel lacks. */
export function lackingKinds(types: readonly string[]): string[] {
  return types.filter((type) => ['ipvlan', 'vlan', 'dummy', 'vrf'].includes(type) && !hasKind(type))
}

/**
 * Shell commands that give a node the master that a network's first plugin names. It is a LAN with a router behind it,
 * on the node's link `lan0`. The router passes packets on. Empty when the plugin names no master.
 */
export function masterOf([first]: readonly object[]): string {
  const {
    type = '',
    master,
    vlanId,
    ipam = {},
  } = (first ?? {}) as {
    type?: string
    master?: string
    vlanId?: number
    ipam?: { ranges?: { gateway?: string; subnet: string }[][] }
  }
  if (!NEEDS_MASTER.includes(type) || !master) return ''
  const gateways = (ipam.ranges ?? []).map(([range]) => `${range?.gateway}/${range?.subnet.split('/')[1]}`)
  const dev = vlanId === undefined ? 'lan0' : `lan0.${vlanId}`
  return [
    `ip link add ${master} type veth peer name lan0`,
    ...(vlanId === undefined ? [] : [`ip link add link lan0 name ${dev} type vlan id ${vlanId}`]),
    ...new Set(
      [master, 'lan0', dev].map((one) => `echo 0 >/proc/sys/net/ipv6/conf/${one}/accept_dad; ip link set ${one} up`),
    ),
    ...gateways.map((cidr) => `ip addr add ${cidr} dev ${dev}${cidr.includes(':') ? ' nodad' : ''}`),
    'echo 1 >/proc/sys/net/ipv4/ip_forward; echo 1 >/proc/sys/net/ipv6/conf/all/forwarding',
  ].join('\n')
}

/** Gives a node that master. */
export async function wireMaster(
  { exec }: { exec(argv: readonly string[]): Promise<{ status: number; stderr: string }> },
  plugins: readonly object[],
): Promise<void> {
  const { status, stderr } = await exec(['sh', '-ec', masterOf(plugins)])
  if (status !== 0) throw new Error(`Cannot wire the master: ${stderr}`)
}
