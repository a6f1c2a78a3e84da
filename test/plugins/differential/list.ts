import { join } from 'node:path'
import type { Answer, Call, Namespace, Row } from '../../support/harness.ts'
import { plugin } from '../../support/harness.ts'

const DIST = join(import.meta.dir, '../../../dist')

/** A network as a runtime has it, and what it says beside it. */
export interface Scene {
  /** What it is called in the test's name. */
  readonly name: string
  readonly list: { readonly cniVersion?: string; readonly name: string; readonly plugins: readonly Conf[] }
  readonly ifname?: string
  /** CNI_ARGS of both pods, and of each. */
  readonly args?: Partial<Record<Pod, string>>
  /** Capability arguments of each pod. */
  readonly caps?: Partial<Record<Pod, Readonly<Record<string, unknown>>>>
  /** Further keys of the first plugin for each pod. */
  readonly more?: Partial<Record<Pod, object>>
  /** Further keys of the first plugin for CHECK: the configuration was changed since. */
  readonly atCheck?: object
  /** Shell commands on the node before the first ADD. */
  readonly before?: string
  /** Before the last DEL the runtime sends GC with no valid attachment. */
  readonly gc?: true
  /** How DEL of the first pod is told of the namespace. */
  readonly del?: 'live' | 'empty' | 'gone'
}
/** One plugin of a list. */
export interface Conf {
  readonly type: string
  readonly [key: string]: unknown
}
export type Pod = 'a' | 'b'
/** A plugin's answer and what it was asked for. */
export interface Said extends Answer {
  readonly type: string
}
/** One network on one node: the calls of a runtime, plugin by plugin, as libcni makes them. */
export interface Runtime {
  /** The plugins in order, up to the first that fails; each gets the result of the one before. */
  add(pod: Pod): Promise<Said[]>
  check(pod: Pod): Promise<Said[]>
  /** In reverse order, every plugin whatever the others said. */
  del(pod: Pod, netns: Namespace | string): Promise<Said[]>
  status(): Promise<Said[]>
  /** With this list of valid attachments. */
  gc(...keep: readonly Pod[]): Promise<Said[]>
  /** The result of the last ADD that went well to its end. */
  result(pod: Pod): Row | undefined
}

/** The runtime of a node, with the plugins of a directory; ours when none is named. */
export function runtime(scene: Scene, place: Record<Pod | 'node', Namespace>, dir = DIST): Runtime {
  const { list, ifname = 'eth0', args = {}, caps = {}, more = {}, atCheck = {} } = scene
  const results = new Map<Pod, Row>()
  const given = (pod: Pod | undefined, conf: Conf) => {
    const declared = Object.entries((conf['capabilities'] as Record<string, boolean>) ?? {}).flatMap(([key, on]) =>
      on ? [key] : [],
    )
    const runtimeConfig = Object.fromEntries(
      Object.entries((pod && caps[pod]) ?? {}).filter(([key]) => declared.includes(key)),
    )
    return {
      ...conf,
      ...(pod && conf === list.plugins[0] ? more[pod] : {}),
      name: list.name,
      ...(list.cniVersion === undefined ? {} : { cniVersion: list.cniVersion }),
      ...(Object.keys(runtimeConfig).length > 0 ? { runtimeConfig } : {}),
    }
  }
  async function call(
    command: string,
    conf: Conf,
    pod: Pod | undefined,
    further: object,
    netns: Call['netns'] = pod && place[pod],
  ): Promise<Said> {
    const args_ = pod && args[pod]
    const answer = await plugin(
      conf.type,
      {
        command,
        conf: { ...given(pod, conf), ...further },
        path: dir,
        file: join(dir, conf.type),
        ...(pod ? { containerId: `pod-${pod}`, ifname, netns: netns ?? null } : { containerId: null, ifname: null }),
        ...(args_ === undefined ? {} : { args: args_ }),
      },
      place.node,
    )
    return { ...answer, type: conf.type }
  }
  return {
    async add(pod) {
      const said: Said[] = []
      let prevResult: Row | undefined
      for (const conf of list.plugins) {
        const answer = await call('ADD', conf, pod, prevResult ? { prevResult } : {})
        said.push(answer)
        if (answer.status !== 0) return said
        prevResult = answer.result
      }
      results.set(pod, prevResult as Row)
      return said
    },
    check: (pod) =>
      inOrder(list.plugins, (conf) =>
        call('CHECK', conf, pod, { ...(conf === list.plugins[0] ? atCheck : {}), prevResult: results.get(pod) }),
      ),
    del: (pod, netns) =>
      inOrder(list.plugins.toReversed(), (conf) =>
        call(
          'DEL',
          conf,
          pod,
          (list.cniVersion ?? '0.1.0') >= '0.4.0' && results.has(pod) ? { prevResult: results.get(pod) } : {},
          netns,
        ),
      ),
    status: () => inOrder(list.plugins, (conf) => call('STATUS', conf, undefined, {})),
    gc: (...keep) =>
      inOrder(list.plugins, (conf) =>
        call('GC', conf, undefined, {
          'cni.dev/valid-attachments': keep.map((pod) => ({ containerID: `pod-${pod}`, ifname })),
        }),
      ),
    result: (pod) => results.get(pod),
  }
}

async function inOrder(plugins: readonly Conf[], work: (conf: Conf) => Promise<Said>): Promise<Said[]> {
  const said: Said[] = []
  for (const conf of plugins) said.push(await work(conf))
  return said
}
