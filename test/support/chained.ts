import type { Answer, Call, Namespace, Row } from './harness.ts'
import { plugin } from './harness.ts'
import { bridgeConf, type Conf, containerId, network } from './network.ts'

/** A list of two: bridge on `br0`, then another plugin, as a runtime calls them. */
export interface Chain {
  readonly bridge: Conf
  readonly conf: Conf
  /** bridge's ADD for a pod. */
  link(pod: Namespace, more?: Partial<Call>): Promise<Row>
  /** A call to the second plugin alone. */
  call(command: string, pod: Namespace | undefined, keys?: object, more?: Partial<Call>): Promise<Answer>
  /** Both ADDs: what the second answers. */
  add(pod: Namespace, keys?: object, more?: Partial<Call>): Promise<Row>
}

/** Makes one, on 10.1.0.0/24 and fd00:1::/64 unless told otherwise. */
export function chain(
  node: Namespace,
  keys: object,
  { bridge = {}, subnets = ['10.1.0.0/24', 'fd00:1::/64'] }: { bridge?: object; subnets?: readonly string[] } = {},
): Chain {
  const first = bridgeConf(
    { isDefaultGateway: true, ...('cniVersion' in keys && { cniVersion: keys.cniVersion }), ...bridge },
    ...subnets,
  )
  const conf = { cniVersion: first['cniVersion'], name: first.name, ...keys } as Conf
  const call = (command: string, pod: Namespace | undefined, more: object = {}, how: Partial<Call> = {}) =>
    plugin(
      conf['type'] as string,
      { command, conf: { ...conf, ...more }, ...(pod && { containerId: containerId(pod), netns: pod }), ...how },
      node,
    )
  return {
    bridge: first,
    conf,
    link: (pod, more) => network(node, first).add(pod, more),
    call,
    async add(pod, more, how) {
      const prevResult = await network(node, first).add(pod, how)
      return good(await call('ADD', pod, { prevResult, ...more }, how)).result
    },
  }
}

/** The answer, when the call succeeded; throws with what it said when not. */
export function good(answer: Answer): Answer {
  if (answer.status !== 0) throw new Error(`${answer.stdout}${answer.stderr}`)
  return answer
}
