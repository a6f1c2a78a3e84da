import assert from 'node:assert/strict'
import { mkdtempSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Namespace, Row } from './harness.ts'
import type { Conf } from './network.ts'

const DIST = join(import.meta.dir, '../../dist')
let serial = 0

/**
 * A configuration of host-device, of a network of its own with a pool in 10.1.0.0/24; `ipam: undefined` leaves the pool
 * out.
 */
export function deviceConf(keys: object): Conf {
  return {
    cniVersion: '1.1.0',
    name: `lent${++serial}`,
    type: 'host-device',
    ipam: {
      type: 'host-local',
      dataDir: mkdtempSync('/run/ipam-'),
      ranges: [[{ subnet: '10.1.0.0/24', rangeStart: '10.1.0.10' }]],
    },
    ...keys,
  }
}

/**
 * Makes devices of a node that can be lent, each with a fixed address, their far ends ports of br0, where the node has
 * 10.1.0.1.
 */
export async function makeDevices(node: Namespace, ...devices: readonly string[]): Promise<void> {
  const has = await names(node)
  if (!has.includes('br0')) {
    for (const args of ['link add name br0 up type bridge', 'addr add 10.1.0.1/24 dev br0'])
      await node.ip(...args.split(' '))
  }
  for (const [i, name] of devices.entries())
    if (!has.includes(name))
      await node.ip(
        ...`link add name ${name} address 02:00:00:00:01:${10 + i} type veth peer name far-${name} address 02:00:00:00:02:${10 + i}`.split(
          ' ',
        ),
      )
  for (const name of devices) await wire(node, name)
}

/**
 * Makes the far end of a device a port of br0; without IPv6 of its own it is the same whether it has a carrier or not.
 */
export async function wire(node: Namespace, device: string): Promise<void> {
  await node.exec(['sh', '-c', `echo 1 >/proc/sys/net/ipv6/conf/far-${device}/disable_ipv6`])
  await node.ip('link', 'set', 'dev', `far-${device}`, 'up', 'master', 'br0')
}

/** The settings of a link that a device must have when it is given back. */
export async function linkOf(ns: Namespace, name: string): Promise<Row> {
  const [row] = await ns.json('link', 'show', 'dev', name)
  assert.ok(row)
  const { ifname, address, mtu, flags, ifalias } = row
  return { ifname, address, mtu, isUp: flags.includes('UP'), ifalias }
}

/** The names of all links but lo. */
export async function names(ns: Namespace): Promise<string[]> {
  return (await ns.json('link'))
    .map(({ ifname }) => ifname)
    .filter((name) => name !== 'lo')
    .sort()
}

/** host-device as a program that sees a sysfs of its own: `setUp` is the shell that mounts it. */
export function withSysfs(setUp: string): { file: string } {
  const file = `${mkdtempSync('/run/sysfs-')}/host-device`
  writeFileSync(
    file,
    `#!/bin/sh\nexec unshare --mount --propagation private sh -ec '${setUp}\nexec ${DIST}/host-device'\n`,
    { mode: 0o755 },
  )
  return { file }
}

/** The shell that puts a link of a node where a bus has it, below a device of that name. */
export async function onBus(node: Namespace, device: string, name: string): Promise<string> {
  const [{ ifindex, address }] = (await node.json('link', 'show', 'dev', name)) as [Row]
  const dir = `/sys/bus/${device}/net/${name}`
  return `mkdir -p ${dir}\necho ${ifindex} >${dir}/ifindex\necho ${address} >${dir}/address`
}
