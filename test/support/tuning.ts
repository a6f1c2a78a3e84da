import type { Namespace, Row } from './harness.ts'

export const MAC = '02:00:00:00:00:09'
/** Everything that tuning does to a link. */
export const ALL = { mac: '02-00-00-00-00-09', mtu: 1400, txQLen: 77, promisc: true, allmulti: true }

/** A pod's eth0, in the words of tuning's keys. */
export async function looks(pod: Namespace): Promise<Row> {
  const [{ address: mac, mtu, txqlen: txQLen, flags } = {} as Row] = await pod.json('link', 'show', 'dev', 'eth0')
  return { mac, mtu, txQLen, promisc: flags.includes('PROMISC'), allmulti: flags.includes('ALLMULTI') }
}

/** The MTU of a link. */
export async function mtuOf(ns: Namespace, name: string): Promise<number> {
  return (await ns.json('link', 'show', 'dev', name))[0]?.['mtu']
}

/** A sysctl below net in a namespace, named with slashes. */
export async function sysctl(ns: Namespace, name: string): Promise<string> {
  return (await ns.exec(['cat', `/proc/sys/net/${name}`])).stdout.trim()
}
