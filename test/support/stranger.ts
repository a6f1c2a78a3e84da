import assert from 'node:assert/strict'
import { gatewayOf } from './etcd-networks.ts'
import type { Namespace } from './harness.ts'
import type { Node } from './nodes.ts'

/** The address of a pod that no node has. */
export const FORGED = { v4: '10.244.99.1', v6: 'fd00:244:0:99::1' } as const

/**
 * Counts the packets with a forged source that reach a node by a device of its backend: before any rule but those that
 * refuse the tunnelled packet as a whole.
 */
export async function arrivals({ ns }: Node, dev: string): Promise<() => Promise<number>> {
  const text = `table inet arrivals {
  chain in {
    type filter hook prerouting priority -500
    iifname "${dev}" ip saddr ${FORGED.v4} counter
    iifname "${dev}" ip6 saddr ${FORGED.v6} counter
  }
}`
  const { status, stderr } = await ns.exec(['nft', '-f', '-'], {
    stdin: `table inet arrivals\ndelete table inet arrivals\n${text}`,
  })
  assert.equal(status, 0, stderr)
  return async () => {
    const { stdout } = await ns.exec(['nft', 'list', 'table', 'inet', 'arrivals'])
    return [...stdout.matchAll(/packets (\d+)/g)].reduce((sum, [, packets]) => sum + Number(packets), 0)
  }
}

/**
 * Sends five packets by a device of the sender, from a forged address to the pods of the target. The device leads to
 * the target's node.
 */
export async function inject(from: Namespace, dev: string, to: Node, family: 'v4' | 'v6' = 'v4'): Promise<void> {
  const [six, length] = family === 'v6' ? ['-6', 128] : ['-4', 32]
  const target = gatewayOf(to)[family] as string
  await from.ip('addr', 'replace', `${FORGED[family]}/${length}`, 'dev', 'lo', ...(family === 'v6' ? ['nodad'] : []))
  await from.ip(six, 'route', 'replace', `${target}/${length}`, 'dev', dev, 'src', FORGED[family])
  const { stdout } = await from.exec(['ping', '-n', '-q', '-c', '5', '-i', '0.01', '-W', '1', target])
  assert.match(stdout, /5 packets transmitted/)
}

/** What the agent says of refused packets: how many, and from where. */
export async function refusedBy({ dir }: Node): Promise<{ readonly refused: number; readonly strangers: string[] }> {
  const answer = await fetch('http://plumb/status', { unix: `${dir}/agent.sock` })
  const { tunnels } = (await answer.json()) as { tunnels?: { refused: number; strangers: string[] } }
  return { refused: tunnels?.refused ?? -1, strangers: tunnels?.strangers ?? [] }
}
