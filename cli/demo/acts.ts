import { must } from './exec.ts'
import { plumb } from './node.ts'
import { expect } from './screen.ts'

/** The place of a pod: its namespace, and its node when the demo has a cluster. */
export interface PodHome {
  readonly name: string
  readonly node?: string
}
/** A pod with the answer of ADD. The lists of addresses, prefix lengths and gateways are in one order. */
export interface Pod extends PodHome {
  readonly addresses: readonly string[]
  readonly prefixes: readonly string[]
  readonly gateways: readonly string[]
  /** The MTU of eth0 in bytes, as the kernel reports it. */
  readonly mtu: number
}
interface Row {
  readonly ifname: string
  readonly mtu: number
  readonly addr_info: readonly { readonly local: string; readonly prefixlen: number; readonly scope: string }[]
}

/** Attaches a pod, and checks in the kernel that eth0 has the addresses of the answer. Throws Error. */
export async function addPod(network: string, place: PodHome, ...options: readonly string[]): Promise<Pod> {
  const { name, node } = place
  const { status, stdout, stderr } = await plumb(['add', network, name, '--json', ...options], node)
  if (status !== 0) throw new Error(stderr)
  const ips: readonly { readonly address: string; readonly gateway: string }[] = JSON.parse(stdout).ips
  const answered = ips.map(({ address }) => address)
  const [row] = await links(place, 'eth0')
  const held = row?.addr_info
    .filter(({ scope }) => scope === 'global')
    .map(({ local, prefixlen }) => `${local}/${prefixlen}`)
  expect(`addresses of eth0 in ${name}`, held, answered)
  const [addresses, prefixes] = [0, 1].map((part) => answered.map((address) => address.split('/')[part] as string)) as [
    string[],
    string[],
  ]
  return { ...place, addresses, prefixes, gateways: ips.map(({ gateway }) => gateway), mtu: row?.mtu ?? 0 }
}

/** Runs CHECK for a pod. Returns `as it should be` for exit status 0, else the details of the error. */
export async function checkPod(network: string, name: string): Promise<string> {
  const { status, stderr } = await plumb(['check', network, name])
  if (status === 0) return 'as it should be'
  const [, ...details] = stderr.trimEnd().split('\n')
  return details.map((line) => line.trim()).join('; ') || stderr
}

/** Detaches a pod, and checks that the pod has no link except lo. Throws Error. */
export async function delPod(network: string, place: PodHome): Promise<string> {
  const { name, node } = place
  const { status, stderr } = await plumb(['del', network, name], node)
  expect('what del said', [status, stderr], [0, ''])
  expect(
    `links in ${name}`,
    (await links(place)).map(({ ifname }) => ifname),
    ['lo'],
  )
  return `eth0 is gone from ${name}`
}

/** Removes a pod's IPv4 default route by hand, and checks that the route is gone. Throws Error. */
export async function loseRoute(name: string): Promise<string> {
  await must(['ip', '-4', 'route', 'delete', 'default'], { ns: name })
  expect('default routes', await must(['ip', '-4', 'route', 'show', 'default'], { ns: name }), '')
  return `ip -n ${name} route delete default`
}

async function links({ name: ns, node }: PodHome, name?: string): Promise<readonly Row[]> {
  return JSON.parse(await must(['ip', '-j', 'addr', 'show', ...(name ? ['dev', name] : [])], { ns, node }))
}
