import { parse as parseYaml } from 'yaml'
import { readText } from '../../../lib/os/reading.ts'
import type { Fact } from './facts.ts'
import { type Process, processes } from './processes.ts'

/** The file with name servers that kubelet gives to pods with the policy `Default`, such as CoreDNS. */
export interface Resolver {
  readonly path: string
  readonly servers: readonly string[]
  /** The configuration file of kubelet. */
  readonly kubelet: string
}

const [KUBELET, RESOLV] = ['/var/lib/kubelet/config.yaml', '/etc/resolv.conf']

/** The name servers that kubelet gives to pods. Undefined when no kubelet runs. */
export const resolver: Fact<Resolver | undefined> = {
  read: async ({ of }) => readResolver(await of(processes)),
  inAgent: { missing: 'the name servers' },
}

/** Reads what kubelet gives. Undefined when no kubelet runs in this namespace. Throws Error. */
export function readResolver(processes: readonly Process[]): Resolver | undefined {
  const found = processes.find(({ name }) => name === 'kubelet')
  if (!found) return undefined
  const kubelet = wordOf(found.argv, 'config') ?? KUBELET
  const given = (parseYaml(readText(kubelet) ?? '') ?? {}) as { resolvConf?: unknown }
  const path =
    wordOf(found.argv, 'resolv-conf') ?? (typeof given.resolvConf === 'string' ? given.resolvConf : undefined) ?? RESOLV
  const text = path === '' ? '' : (readText(path) ?? '')
  return { path, kubelet, servers: [...text.matchAll(/^\s*nameserver\s+(\S+)/gm)].map(([, ip = '']) => ip) }
}

function wordOf(argv: readonly string[], name: string): string | undefined {
  const at = argv.indexOf(`--${name}`)
  return at >= 0 ? argv[at + 1] : argv.find((word) => word.startsWith(`--${name}=`))?.slice(name.length + 3)
}
