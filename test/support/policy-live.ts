import assert from 'node:assert/strict'
import { mkdirSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Node as Host } from './nodes.ts'
import { type Answering, startPod } from './policy-fixture.ts'

/** Labels of the pods on the node, by their names in namespace x. */
export type Labels = Readonly<Record<string, string>>

/** A running agent's node with pods on its bridge: 10.244.N.10 and on, and the manifests that the agent follows. */
export interface Live {
  readonly names: readonly string[]
  ip(pod: string): string
  /** Writes a manifest file at once, or removes it. */
  write(file: string, ...objects: readonly object[]): void
  /** The manifest of a pod. */
  pod(name: string, labels?: Labels, more?: { readonly phase?: string; readonly hostNetwork?: boolean }): object
  process(pod: string): Answering
  /** Whether a connection can be made. */
  passes(from: string, to: string, port?: number, protocol?: 'TCP' | 'UDP'): Promise<boolean>
  end(): Promise<void>
}

/** A NetworkPolicy of namespace x. */
export function policyOf(name: string, spec: object): object {
  return { kind: 'NetworkPolicy', metadata: { namespace: 'x', name }, spec }
}

/** Makes pods of namespace x on a node whose subnet is 10.244.N.0/24, and their manifests in a folder. */
export async function live(node: Host, dir: string, names: readonly string[]): Promise<Live> {
  const { ns, n } = node
  mkdirSync(dir, { recursive: true })
  const unique = ns.path.slice(ns.path.lastIndexOf('/') + 1)
  const setup = [
    'ip link add cni0 type bridge',
    `ip addr add 10.244.${n}.1/24 dev cni0`,
    'ip link set cni0 up',
    'sysctl -qw net.ipv4.ip_forward=1 net.bridge.bridge-nf-call-iptables=1 net.bridge.bridge-nf-call-ip6tables=1',
  ]
  const ip = (name: string) => `10.244.${n}.${10 + names.indexOf(name)}`
  for (const name of names)
    setup.push(
      `ip netns add ${unique}-${name}`,
      `ip link add v${name} master cni0 up type veth peer name eth0 netns ${unique}-${name}`,
      `ip -n ${unique}-${name} addr add ${ip(name)}/24 dev eth0`,
      `ip -n ${unique}-${name} link set eth0 up`,
      `ip -n ${unique}-${name} link set lo up`,
      `ip -n ${unique}-${name} route add default via 10.244.${n}.1`,
    )
  const made = await ns.exec(['sh', '-ec', setup.join('\n')])
  assert.equal(made.status, 0, made.stderr)
  const processes = new Map(names.map((name) => [name, startPod(`${unique}-${name}`)]))
  await Promise.all([...processes.values()].map((one) => one.ready()))
  const process = (name: string) => processes.get(name) as Answering
  return {
    names,
    ip,
    process,
    write(file, ...objects) {
      const path = join(dir, file)
      if (objects.length === 0) return rmSync(path, { force: true })
      // The agent must not read half a file.
      writeFileSync(`${path}.new`, objects.map((object) => JSON.stringify(object)).join('\n---\n'))
      renameSync(`${path}.new`, path)
    },
    pod: (name, labels = {}, { phase = 'Running', hostNetwork = false } = {}) => ({
      kind: 'Pod',
      metadata: { namespace: 'x', name, labels: { app: name, ...labels } },
      spec: { nodeName: node.name, hostNetwork, containers: [] },
      status: { phase, podIPs: [{ ip: ip(name) }] },
    }),
    async passes(from, to, port = 80, protocol = 'TCP') {
      const [answer] = await process(from).ask([{ ip: ip(to), port, protocol }])
      return answer as boolean
    },
    async end() {
      for (const one of processes.values()) one.kill()
      await ns.exec(['sh', '-c', names.map((name) => `ip netns delete ${unique}-${name}`).join('\n')])
    },
  }
}
