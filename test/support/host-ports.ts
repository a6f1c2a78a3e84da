import { copyFileSync, existsSync, mkdtempSync, readFileSync, realpathSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Answer, Call, Namespace, Row } from './harness.ts'
import { plugin } from './harness.ts'
import { bridgeConf, type Conf, containerId, type Network, network } from './network.ts'

const DIST = join(import.meta.dir, '../../dist')
// The next test has another node, whose ports nobody has.
afterEach(() => rmSync('/run/cni/plumb', { recursive: true, force: true }))

/** One entry of `runtimeConfig.portMappings`. */
export interface Port {
  readonly hostPort: number
  readonly containerPort: number
  readonly protocol?: string
  readonly hostIP?: string
  readonly range?: number
}
/** A network of a list: a bridge, then portmap, as a runtime calls them. */
export interface PortNetwork {
  /** The bridge's configuration and portmap's. */
  readonly bridge: Conf
  readonly conf: Conf
  /** Both ADDs, the second with the first's result. */
  add(pod: Namespace, ports: readonly Port[], more?: Partial<Call>): Promise<Row>
  /** A call to portmap alone. */
  call(command: string, pod: Namespace | undefined, keys?: object, more?: Partial<Call>): Promise<Answer>
  /** Both DELs, portmap's first, without runtimeConfig. */
  del(pod: Namespace, more?: Partial<Call>): Promise<void>
}

/** Makes one on `br0`, 10.1.0.0/24 and fd00:1::/64; `file` is the directory of the plugins when they are not ours. */
export function portNetwork(
  node: Namespace,
  {
    bridge = {},
    portmap = {},
    subnets = ['10.1.0.0/24', 'fd00:1::/64'],
    dir = DIST,
  }: { bridge?: object; portmap?: object; subnets?: readonly string[]; dir?: string } = {},
): PortNetwork {
  const first = bridgeConf({ cniVersion: '1.0.0', isDefaultGateway: true, ...bridge }, ...subnets)
  const conf: Conf = { cniVersion: first['cniVersion'], name: first.name, type: 'portmap', ...portmap }
  async function run(
    type: string,
    command: string,
    pod: Namespace | undefined,
    given: object,
    more: Partial<Call> = {},
  ): Promise<Answer> {
    return plugin(
      type,
      {
        command,
        conf: given,
        ...(pod && { containerId: containerId(pod), netns: pod }),
        file: join(dir, type),
        path: dir,
        ...more,
      },
      node,
    )
  }
  const net: PortNetwork = {
    bridge: first,
    conf,
    async add(pod, ports, more) {
      // The kernel's own link-local addresses, tentative for a second or two, would be one more thing to wait for.
      await node.exec(['sh', '-c', 'echo 0 >/proc/sys/net/ipv6/conf/default/accept_dad'])
      const prevResult = works(await run('bridge', 'ADD', pod, first, more)).result
      return works(
        await run('portmap', 'ADD', pod, { ...conf, prevResult, runtimeConfig: { portMappings: ports } }, more),
      ).result
    },
    call: (command, pod, keys = {}, more) => run('portmap', command, pod, { ...conf, ...keys }, more),
    async del(pod, more) {
      works(await run('portmap', 'DEL', pod, conf, more))
      works(await run('bridge', 'DEL', pod, first, more))
    },
  }
  return net
}

/**
 * The same as `network` gives, of a list of bridge and portmap: the pod named `pod` has host port 8080, `other` 8081.
 */
export function portsAsNetwork(node: Namespace, conf: Conf): Network {
  const first = {
    ...bridgeConf({ isDefaultGateway: true }),
    cniVersion: conf['cniVersion'],
    name: conf.name,
    ipam: { type: 'host-local', ranges: [[{ subnet: '10.1.0.0/24' }], [{ subnet: 'fd00:1::/64' }]] },
  }
  const [before, own] = [network(node, first), network(node, conf)]
  const made = new Map<string, Row>()
  const runtimeConfig = (pod: Namespace) => ({
    portMappings: [{ hostPort: pod.name === 'other' ? 8081 : 8080, containerPort: 80 }],
  })
  return {
    conf,
    async add(pod, more) {
      const id = containerId(pod)
      const prevResult = made.get(id) ?? (await before.add(pod))
      made.set(id, prevResult)
      return own.add(pod, { conf: { ...conf, prevResult, runtimeConfig: runtimeConfig(pod) }, ...more })
    },
    check: (pod, result, more) =>
      own.check(pod, result, { conf: { ...conf, prevResult: result, runtimeConfig: runtimeConfig(pod) }, ...more }),
    async del(pod, more = {}) {
      await own.del(pod, more)
      const { conf: _, ...where } = more
      await before.del(pod, where)
      made.delete(containerId(pod))
    },
    async gc(...keep) {
      await before.gc(...keep)
      for (const id of [...made.keys()]) if (!keep.some((pod) => containerId(pod) === id)) made.delete(id)
      await own.gc(...keep)
    },
    fails: (command, pod, more) =>
      own.fails(command, pod, {
        ...more,
        conf: {
          prevResult: { ips: [{ address: '10.1.0.9/24' }] },
          runtimeConfig: runtimeConfig(pod),
          ...(more?.conf as object),
        },
      }),
  }
}

/** A call of ours during which each of these tools writes its name down: the answer, and what was started. */
export async function watched(node: Namespace, type: string, call: Call): Promise<{ answer: Answer; tools: string[] }> {
  const dir = mkdtempSync('/run/watched-')
  const mounts = WATCHED.flatMap((tool) => {
    const path = ['/usr/sbin', '/usr/bin'].map((one) => `${one}/${tool}`).find(existsSync)
    if (path === undefined) return []
    copyFileSync(realpathSync(path), join(dir, tool))
    writeFileSync(join(dir, `${tool}.sh`), `#!/bin/sh\necho ${tool} >>${dir}/started\nexec ${dir}/${tool} "$@"\n`, {
      mode: 0o755,
    })
    return [`mount --bind ${dir}/${tool}.sh ${realpathSync(path)}`]
  })
  const file = join(dir, 'call')
  writeFileSync(
    file,
    `#!/bin/sh\nexec unshare --mount --propagation private sh -ec '${mounts.join('\n')}\nexec ${DIST}/${type}'\n`,
    { mode: 0o755 },
  )
  const answer = await plugin(type, { ...call, file }, node)
  return {
    answer,
    tools: existsSync(`${dir}/started`) ? readFileSync(`${dir}/started`, 'utf8').trim().split('\n') : [],
  }
}
// Of iptables one name each: all are one program.
const WATCHED = ['ip', 'bridge', 'tc', 'nft', 'conntrack', 'iptables-save', 'iptables-legacy-save']

/** The answer, when the call succeeded; throws with what it said when not. */
export function works(answer: Answer): Answer {
  if (answer.status !== 0) throw new Error(`${answer.stdout}${answer.stderr}`)
  return answer
}

/** `KEY VALUE` of the elements of all port maps of a node. */
export async function mappings(node: Namespace): Promise<string[]> {
  const { stdout } = await node.exec(['nft', 'list', 'table', 'inet', 'plumb'])
  const maps = stdout.match(/^\tmap ports\w+ \{[\s\S]*?^\t\}/gm) ?? []
  return maps
    .flatMap((map) =>
      [
        ...map.matchAll(/((?:[0-9a-f.:]+ \. )?(?:tcp|udp|sctp) \. \d+)(?: comment "[^"]*")? : ([0-9a-f.:]+ \. \d+)/g),
      ].map(([, key, value]) => `${key} ${value}`),
    )
    .sort()
}
