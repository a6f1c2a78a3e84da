import assert from 'node:assert/strict'
import type { Namespace, Row } from './harness.ts'
import { bridgeConf, type Conf } from './network.ts'

/** Limits both ways. */
export const BOTH = { ingressRate: 80_000_000, ingressBurst: 1_000_000, egressRate: 40_000_000, egressBurst: 800_000 }

/** A configuration of `bandwidth` for a network of its own. */
export function conf(keys: object = BOTH): Conf {
  return { cniVersion: '1.1.0', name: bridgeConf().name, type: 'bandwidth', ...keys }
}

/** What `tc` with this line answers. */
export async function tc(node: Namespace, line: string): Promise<Row[]> {
  const { status, stdout, stderr } = await node.exec(['tc', '-j', '-s', ...line.split(' ')])
  assert.equal(status, 0, stderr)
  return JSON.parse(stdout || '[]')
}

/** The root qdisc of a link. */
export async function root(node: Namespace, dev: string): Promise<Row> {
  return (await tc(node, `qdisc show dev ${dev}`)).find((one) => one['root']) ?? {}
}

/** Where what comes in by a link is led. */
export async function redirected(node: Namespace, dev: string): Promise<string[]> {
  const filters = await tc(node, `filter show dev ${dev} ingress`)
  return filters.flatMap(
    ({ options }) => options?.actions?.flatMap(({ kind, to_dev }: Row) => (kind === 'mirred' ? [to_dev] : [])) ?? [],
  )
}
