import { execa } from 'execa'
import type { Cluster as Etcd } from './etcd.ts'
import type { Cluster } from './nodes.ts'

const GATEWAY = '172.30.0.253'
let serial = 0

/**
 * Leads the nodes of a cluster to an etcd's members, and these back, through the namespace of the test. It ends with
 * the nodes.
 */
export async function joinEtcd({ hub, nodes }: Cluster, { endpoints }: Etcd): Promise<void> {
  const link = `nodes${++serial}`
  const space = hub.path.slice(hub.path.lastIndexOf('/') + 1)
  await sh(
    `ip link add ${link} type veth peer name etcd0 netns ${space}; ip -n ${space} link set etcd0 master hub0 up; ip addr add ${GATEWAY}/24 dev ${link}; ip link set ${link} up; echo 1 >/proc/sys/net/ipv4/ip_forward`,
  )
  for (const endpoint of endpoints) {
    const [, id, last] = /\/\/10\.123\.(\d+)\.(\d+):/.exec(endpoint) ?? []
    await sh(`ip -n etcd${id}-${Number(last) - 10} route replace default via 10.123.${id}.1`)
  }
  for (const { ns } of nodes) await ns.ip('route', 'add', '10.123.0.0/16', 'via', GATEWAY)
}

async function sh(script: string): Promise<void> {
  await execa('sh', ['-ec', script])
}
