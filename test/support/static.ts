// needs: reference
import assert from 'node:assert/strict'
import { PLUGINS, references } from '../../scripts/peers.ts'
import { type Answer, type Call, type Namespace, plugin, type Row } from './harness.ts'
import type { Conf } from './network.ts'

/** An address of each family; the first has a gateway. */
export const DUAL = [{ address: '10.1.0.7/24', gateway: '10.1.0.1' }, { address: 'fd00:1::7/64' }] as const
let serial = 0

/** A configuration of static alone, as the plugin that delegates to it hands it on. */
export function staticConf(ipam: object, more: object = {}): Conf {
  return { cniVersion: '1.0.0', name: `static${++serial}`, type: 'bridge', ipam: { type: 'static', ...ipam }, ...more }
}

/** The same, called as a bridge with gateways. */
export function bridged(ipam: object): Conf {
  return { ...staticConf(ipam), type: 'bridge', bridge: 'br0', isGateway: true }
}

/** A call of static itself, ADD unless said otherwise. */
export function call(node: Namespace, more: Partial<Call>): Promise<Answer> {
  return plugin('static', { command: 'ADD', netns: '/absent', ...more }, node)
}

/** What a call that says nothing has to come to: `[0, '', '']`. */
export function outcome({ status, stdout, stderr }: Answer): [number, string, string] {
  return [status, stdout, stderr]
}

/** A call of static itself that has to fail. */
export async function fails(node: Namespace, more: Partial<Call>, code: number, msg: RegExp): Promise<void> {
  const { status, error, stdout } = await call(node, more)
  assert.deepEqual([status, error.code], [1, code], stdout)
  assert.match(error.msg, msg)
}

/** The same text as that of the reference's newest release, where that was built. Earlier ones print more. */
export async function asTheirs(node: Namespace, stdout: string, more: Partial<Call>): Promise<void> {
  const reference = references().find(({ version }) => version === PLUGINS)
  if (reference)
    assert.equal((await call(node, { ...more, file: `${reference.path}/static` })).stdout.trimEnd(), stdout.trimEnd())
}

/** Each address of a result with its gateway. */
export function gateways(result: Row): [string, string | undefined][] {
  return result['ips'].map(({ address, gateway }: Row) => [address, gateway])
}
