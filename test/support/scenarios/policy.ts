// Scenarios of NetworkPolicy and ClusterNetworkPolicy. A verdict is that of the oracle, and the rules of each node on the
// way have to come to the same.
import type { Changes } from '../../../agent/cluster/changes.ts'
import { Endpoints, podKey } from '../../../agent/policy/endpoints.ts'
import { decide, type Verdict } from '../../../agent/policy/oracle.ts'
import { tableText } from '../../../agent/policy/program.ts'
import { everything, POLICY_KINDS, PolicyState } from '../../../agent/policy/state.ts'
import { fixed } from '../../../agent/policy/table.ts'
import { type Asked, decision, detail, objectsOf, type PolicyKnowledge, summaries } from '../../../agent/policy/view.ts'
import { listText, podText } from '../../../cli/policy.ts'
import { contains } from '../../../lib/text/cidr.ts'
import { type Ip, parseIp } from '../../../lib/text/ip.ts'
import { parse } from '../../../lib/text/values.ts'
import { type Hook, type Packet, Rules } from './nft-rules.ts'
import { type Run, readable, type Subject, Wrong } from './run.ts'
import type { Section } from './scenario.ts'
import { GIVEN, type NodeOf, World } from './world.ts'

/** Scenarios of policy. */
export const policy: Subject = {
  given: [...GIVEN, 'then: ADD', 'then: DEL'],
  wanted: ['verdicts', 'nft', 'plumb policy', 'plumb policy '],
  start: () => new PolicyRun(),
}

const QUESTION =
  /^(\S+) -> (\S+) (?:(ICMP)|(TCP|UDP|SCTP) (\d{1,5}))( through a Service)?: (?:allowed|refused)( \(.*\))?$/
const EXAMPLE = 'x/a -> y/b TCP 80: allowed'

class PolicyRun implements Run {
  readonly #world = new World()
  readonly #changes: Changes
  readonly #states = new Map<string, PolicyState>()
  /** Pods whose attachments have changed, of the agent's node. */
  readonly #attached = new Set<string>()
  readonly #endpoints = new Endpoints(
    (key) => this.#attached.add(key),
    (key) => this.#world.objects.pods.get(key),
  )

  constructor() {
    this.#changes = this.#world.changes(POLICY_KINDS)
  }

  async take(section: Section): Promise<void> {
    const isTaken = await this.#world.take(section)
    if (!isTaken)
      for (const [i, line] of section.text.trimEnd().split('\n').entries()) this.#call(section.name, line, i)
    this.#follow()
  }

  tell(name: string, wanted: readonly string[]): readonly string[] {
    // A comment stays as it is.
    if (name === 'verdicts') return wanted.map((line, i) => (/^(#|$)/.test(line) ? line : this.#verdict(line, i)))
    const known = this.#known(this.#world.node)
    if (name === 'nft') return this.#lines(this.#world.node)
    if (name === 'plumb policy') return listText(summaries(known)).split('\n')
    const pod = name.slice('plumb policy '.length)
    return readable(() => podText(detail(known, pod))).split('\n')
  }

  problems(): readonly string[] {
    return this.#world.refused(POLICY_KINDS)
  }

  end(): void {
    this.#world.end()
  }

  // `x/a 10.244.1.2`, or `x/a uid=1 10.244.1.2`: what the plugin `policy` tells the agent.
  #call(verb: string, line: string, at: number): void {
    const [, namespace = '', pod = '', uid, rest = ''] = /^([^\s/]+)\/(\S+)(?: uid=(\S+))?((?: \S+)*)$/.exec(line) ?? []
    if (pod === '') throw new Wrong(at, `cannot read ${JSON.stringify(line)}: want "x/a 10.244.1.2"`)
    const id = {
      containerId: parse.containerId([namespace, pod, uid].filter(Boolean).join('-')),
      ifname: parse.ifname('eth0'),
    }
    if (verb === 'then: DEL') {
      if (!this.#endpoints.release(id)) throw new Wrong(at, `there was no ADD of ${line}`)
      return
    }
    const addresses = readable(() => rest.trim().split(' ').map(parseIp), at)
    this.#endpoints.admit({ ...id, namespace, pod, addresses, ...(uid !== undefined && { uid }) })
  }

  // Brings the changes to the state of each node.
  #follow(): void {
    const { objects, node } = this.#world
    const changed = new Map(this.#changes.take())
    const names = [node, ...objects.nodes.keys(), ...[...objects.pods.values()].flatMap((one) => one.node ?? [])]
    const attached = [...this.#attached]
    this.#attached.clear()
    for (const name of new Set(names)) {
      const known = this.#states.get(name)
      const state = known ?? new PolicyState(objects, name, name === node ? this.#endpoints : undefined)
      this.#states.set(name, state)
      const keys = new Map(known ? changed : everything(objects))
      const isOwn = name === node
      const before = known || !isOwn ? [] : this.#endpoints.all().map(podKey)
      if (isOwn) keys.set('pods', new Set([...(keys.get('pods') ?? []), ...attached, ...before]))
      state.apply(keys)
    }
  }

  #verdict(line: string, at: number): string {
    const [, from = '', to = '', icmp, protocol = 'ICMP', port = '0', service = '', why] = QUESTION.exec(line) ?? []
    if (to === '') throw new Wrong(at, `cannot read ${JSON.stringify(line)}: want a line such as "${EXAMPLE}"`)
    const asked = { from, to, protocol: protocol as 'TCP', port: Number(port) }
    const { passes, reason } = readable(() => this.#decided(asked, service !== '', at), at)
    const words = `${from} -> ${to} ${icmp ?? `${protocol} ${port}`}${service}: ${passes ? 'allowed' : 'refused'}`
    return why === undefined ? words : `${words} (${reason})`
  }

  #decided(asked: Asked, isHairpin: boolean, at: number): Verdict {
    const { source, destination } = decision(this.#known(this.#world.node), asked)
    if (isHairpin) return this.#toItself(asked, source, at)
    const path = this.#path(source, destination)
    const packet = { source, destination, protocol: asked.protocol.toLowerCase(), port: asked.port }
    // The object of a pod may still lack the address that ADD gave it.
    const sent = { ...asked, from: source, to: destination }
    const decisions = path.map((node) => ({ node: node.name, ...decision(this.#known(node.name), sent) }))
    // A pod's packets to itself never leave it.
    for (const { node, here } of source === destination ? [] : decisions)
      this.#agree(node, here, hookOf(node, path, packet), packet, at)
    if (decisions.length === 0) return decision(this.#known(this.#world.node), asked).verdict
    // Each node decides the directions of its own pods. What it thinks of the others may be out of date.
    const refused = decisions.find(({ here }) => !here.passes)
    if (refused) return refused.here
    return decisions.find(({ verdict }) => verdict.passes)?.verdict ?? (decisions[0]?.here as Verdict)
  }

  #toItself(asked: Asked, ip: Ip, at: number): Verdict {
    const objects = objectsOf(this.#world.objects)
    const pod = objects.pods.find((one) => `${one.namespace}/${one.name}` === asked.from)
    if (!pod || asked.from !== asked.to) throw new Wrong(at, 'through a Service: want a pod that asks itself')
    const protocol = asked.protocol as 'TCP'
    const attempt = { from: pod, to: pod, source: ip, destination: ip, protocol, port: asked.port, isHairpin: true }
    const verdict = decide(objects, attempt)
    const packet = { source: ip, destination: ip, protocol: protocol.toLowerCase(), port: asked.port }
    this.#agree(pod.node ?? '', verdict, 'forward', packet, at)
    return verdict
  }

  #agree(node: string, here: Verdict, hook: Hook | undefined, packet: Packet, at: number): void {
    const passes = hook === undefined || new Rules(this.#lines(node)).passes(hook, packet)
    if (passes === here.passes) return
    const [oracle, rules] = [here.passes, passes].map((one) => (one ? 'allow' : 'refuse'))
    throw new Wrong(at, `on node ${node} the objects ${oracle} it (${here.reason}), and the rules of nft ${rules} it`)
  }

  #known(node: string): PolicyKnowledge {
    const state = this.#states.get(node) as PolicyState
    return { cluster: this.#world.objects, state, subnets: this.#subnets(node), isAudit: false }
  }

  #subnets(node: string): NodeOf['subnets'] {
    return this.#world.nodes().find(({ name }) => name === node)?.subnets ?? []
  }

  #lines(node: string): string[] {
    const { isAudit, keepsEstablished } = this.#world.settings.enforcement
    const options = { subnets: this.#subnets(node), isAudit, keepsEstablished }
    return [...fixed(options), ...tableText(this.#states.get(node) as PolicyState)]
  }

  // The nodes that the packet meets, the sender's first.
  #path(source: Ip, destination: Ip): NodeOf[] {
    const nodes = this.#world.nodes()
    const without = [...this.#states.keys()].filter((name) => !nodes.some((one) => one.name === name))
    const all = [...nodes, ...without.map((name) => ({ name, ips: [], subnets: [] }))]
    const found = [source, destination].flatMap((ip) => {
      const isAt = ({ name, ips, subnets }: NodeOf) =>
        this.#states.get(name)?.isLocal(ip) || ips.includes(ip) || subnets.some((one) => contains(one, ip))
      return all.find(isAt) ?? []
    })
    return found.filter(({ name }, i) => found.findIndex((one) => one.name === name) === i)
  }
}

// What the node itself sends meets no rule. What is sent to the node itself meets those of `input`.
function hookOf(node: string, path: readonly NodeOf[], { source, destination }: Packet): Hook | undefined {
  const ips = path.find(({ name }) => name === node)?.ips ?? []
  if (ips.includes(source)) return undefined
  return ips.includes(destination) ? 'input' : 'forward'
}
