// What the agent of a scenario reads: manifests, its settings, the network's configuration, and files of the node.
import { mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { LineCounter, parseAllDocuments, parse as parseYaml } from 'yaml'
import { openBackend, unreadKeys } from '../../../agent/backend/open.ts'
import type { Changes } from '../../../agent/cluster/changes.ts'
import { KINDS, type KindName } from '../../../agent/cluster/kinds.ts'
import { openObjects } from '../../../agent/cluster/source.ts'
import { type NetworkConf, parseNetworkConf } from '../../../agent/lease/network-configuration.ts'
import { readSettings } from '../../../agent/settings/read.ts'
import type { Settings } from '../../../agent/settings/settings.ts'
import { isSix } from '../../../lib/text/cidr.ts'
import { type Cidr, type Ip, parseCidr } from '../../../lib/text/ip.ts'
import { readable, Wrong } from './run.ts'
import type { Section } from './scenario.ts'

/** The sections that every subject takes. A name that begins with `/` is a file of the node. */
export const GIVEN = ['objects.yaml', 'settings.yaml', 'net-conf.json', 'then: objects.yaml', 'then: delete', '/']

/** The node of the agent, where the settings name no other one. */
const NODE = 'n1'
/** The network of the pods, where no section has another one. */
const NETWORK = {
  Network: '10.244.0.0/16',
  EnableIPv6: true,
  IPv6Network: 'fd00:244::/48',
  Backend: { Type: 'host-gw' },
}
/** Keys, with those below them. A list has the keys of its items. `null`: not looked at. */
interface Keys {
  readonly [key: string]: Keys | null
}
const ports = keysOf('name protocol port targetPort nodePort appProtocol')
const OBJECT = keysOf('apiVersion kind metadata spec status')
/** The keys of kinds whose reader passes over what it does not know: a wrong key would change a scenario silently. */
const READ: Readonly<Record<string, Keys>> = {
  Namespace: OBJECT,
  ServiceCIDR: { ...OBJECT, spec: keysOf('cidrs') },
  Node: { ...OBJECT, spec: keysOf('podCIDR podCIDRs taints unschedulable') },
  Pod: {
    ...OBJECT,
    spec: {
      ...keysOf('nodeName hostNetwork restartPolicy'),
      containers: { name: null, ports: keysOf('name protocol containerPort hostPort') },
      initContainers: { name: null, restartPolicy: null, ports: keysOf('name protocol containerPort hostPort') },
    },
    status: keysOf('phase podIP podIPs conditions'),
  },
  Service: {
    ...OBJECT,
    spec: {
      ...keysOf('type selector clusterIP clusterIPs ipFamilies ipFamilyPolicy externalIPs externalName'),
      ...keysOf('externalTrafficPolicy internalTrafficPolicy trafficDistribution healthCheckNodePort'),
      ...keysOf('sessionAffinity sessionAffinityConfig publishNotReadyAddresses loadBalancerSourceRanges'),
      ...keysOf('loadBalancerIP loadBalancerClass allocateLoadBalancerNodePorts'),
      ports,
    },
    status: { loadBalancer: { ingress: keysOf('ip ipMode hostname ports') } },
  },
  EndpointSlice: {
    ...keysOf('apiVersion kind metadata addressType'),
    ports,
    endpoints: {
      ...keysOf('addresses nodeName zone hostname targetRef'),
      conditions: keysOf('ready serving terminating'),
      hints: keysOf('forZones forNodes'),
    },
  },
}

function keysOf(names: string): Keys {
  return Object.fromEntries(names.split(' ').map((name) => [name, null]))
}

interface Document {
  /** Kind and name. Documents of one name are one object. */
  readonly name: string
  readonly text: string
}

/** A node of the cluster, from its Node object. */
export interface NodeOf {
  readonly name: string
  /** `spec.podCIDRs`. */
  readonly subnets: readonly Cidr[]
  readonly ips: readonly Ip[]
}

/** A folder with all that is given. */
export class World {
  readonly #dir = mkdtempSync(join(tmpdir(), 'plumb-scenario-'))
  readonly #source = openObjects({ from: 'folder', dir: join(this.#dir, 'objects') }, kindNames(), 'scenario')
  #documents: Document[] = []
  #settings: Settings | undefined
  network: NetworkConf = parseNetworkConf(JSON.stringify(NETWORK))

  constructor() {
    mkdirSync(join(this.#dir, 'objects'))
  }

  /** The objects, as the agent reads them of a folder of manifests. */
  get objects() {
    return this.#source.objects
  }

  /** The settings of the agent. */
  get settings(): Settings {
    this.#settings ??= readSettings(['--network-policy=/objects', '--service-proxy=/objects'], {}, undefined, NODE)
    return this.#settings
  }

  /** The name of the agent's node. */
  get node(): string {
    return this.settings.node
  }

  /** The Nodes that have an object. */
  nodes(): NodeOf[] {
    return [...this.objects.nodes.values()].map(({ name, ips }) => {
      const document = this.#documents.find((one) => one.name === `Node ${name}`)
      const { spec } = parseYaml(document?.text ?? '') as { spec?: { podCIDRs?: unknown[]; podCIDR?: unknown } }
      const given = spec?.podCIDRs ?? (spec?.podCIDR === undefined ? [] : [spec.podCIDR])
      return { name, ips, subnets: given.map(parseCidr) }
    })
  }

  /** The changes of some kinds from now on. */
  changes(kinds: readonly KindName[]): Changes {
    return this.#source.changes(kinds, () => {})
  }

  /** Why objects of these kinds cannot be read. */
  refused(kinds: readonly KindName[]): string[] {
    return this.#source.refused(kinds).map((one) => this.shown(one))
  }

  /** Whether the section was one of `GIVEN`. Throws Wrong for what nobody can read. */
  async take(section: Section): Promise<boolean> {
    const { name, text } = section
    if (name === 'objects.yaml' || name === 'then: objects.yaml') await this.#apply(text)
    else if (name === 'then: delete') await this.#delete(text)
    else if (name === 'settings.yaml') this.#read(text)
    else if (name === 'net-conf.json') await this.#configure(text)
    else if (name.startsWith('/')) this.write(name, text)
    else return false
    return true
  }

  /** Writes a file of the node. */
  write(name: string, text: string): void {
    const path = this.path(name)
    mkdirSync(dirname(path), { recursive: true })
    writeFileSync(path, text)
  }

  /** Where a file of the node is in truth. */
  path(name: string): string {
    return join(this.#dir, name)
  }

  /** A message with the names that the scenario has for files. */
  shown(text: string): string {
    return text.replaceAll(this.#dir, '').replace(/\/objects\/[\w.-]+\.yaml/g, 'objects.yaml')
  }

  end(): void {
    rmSync(this.#dir, { recursive: true })
  }

  async #apply(text: string): Promise<void> {
    const documents = documentsOf(text)
    const names = new Set(documents.map(({ name }) => name))
    this.#documents = [...this.#documents.filter(({ name }) => !names.has(name)), ...documents]
    await this.#sync()
  }

  async #delete(text: string): Promise<void> {
    for (const [i, line] of text.trimEnd().split('\n').entries()) {
      const left = this.#documents.filter(({ name }) => name !== line)
      if (left.length === this.#documents.length) {
        const names = this.#documents.map(({ name }) => name).join(', ')
        throw new Wrong(i, `there is no object ${JSON.stringify(line)} to delete; there are ${names}`)
      }
      this.#documents = left
    }
    await this.#sync()
  }

  // A file for each name: what is wrong in one file holds back nothing of another one. The agent reads the folder once.
  async #sync(): Promise<void> {
    const dir = join(this.#dir, 'objects')
    for (const file of readdirSync(dir)) rmSync(join(dir, file))
    for (const [name, all] of Map.groupBy(this.#documents, (one) => one.name)) {
      const file = name.replace('/', '_').replace(/[^\w.-]/g, '-')
      writeFileSync(join(dir, `${file}.yaml`), all.map(({ text }) => text).join('---\n'))
    }
    await this.#source.run(AbortSignal.abort())
  }

  async #configure(text: string): Promise<void> {
    const network = readable(() => parseNetworkConf(text))
    const backend = await openBackend(network.backend.type)
    readable(() => backend.conf(network.backend.options))
    const [unread] = unreadKeys(network, backend)
    if (unread !== undefined) throw new Wrong(0, `Cannot read net-conf.json: ${unread}`)
    this.network = network
  }

  #read(text: string): void {
    const argv = ['--network-policy=/objects', '--service-proxy=/objects']
    this.#settings = readable(() => readSettings(argv, {}, { path: 'settings.yaml', text }, NODE))
  }
}

/** The subnets or addresses of a node by family. */
export function byFamily<T extends Cidr | Ip>(all: readonly T[]): { readonly v4?: T; readonly v6?: T } {
  const [v4, v6] = [false, true].map((six) => all.find((one) => isSix(one) === six))
  return { ...(v4 !== undefined && { v4 }), ...(v6 !== undefined && { v6 }) }
}

function kindNames(): KindName[] {
  return Object.keys(KINDS) as KindName[]
}

// Each document with its comments. Throws Wrong for a key that no reader would miss.
function documentsOf(text: string): Document[] {
  let line = 0
  return text.split(/^---\n/m).flatMap((one): Document[] => {
    const at = line
    line += one.split('\n').length
    const [document] = parseAllDocuments(one, { lineCounter: new LineCounter() })
    if (!document || !('contents' in document) || document.contents === null) return []
    if (document.errors.length === 0) checkKeys(document.toJS(), one, at)
    return [{ name: nameOf(document.errors.length === 0 ? document.toJS() : {}, at), text: one.replace(/\n*$/, '\n') }]
  })
}

function nameOf(raw: unknown, line: number): string {
  const { kind, metadata } = (raw ?? {}) as { kind?: unknown; metadata?: { namespace?: unknown; name?: unknown } }
  const { namespace, name } = metadata ?? {}
  if (typeof kind !== 'string' || typeof name !== 'string') return `the document at line ${line + 1}`
  return `${kind} ${typeof namespace === 'string' ? `${namespace}/` : ''}${name}`
}

function checkKeys(raw: unknown, text: string, at: number): void {
  const { kind } = (raw ?? {}) as { kind?: unknown }
  const keys = READ[String(kind)]
  const found = keys && unreadIn(raw, keys)
  if (!found) return
  const line = text.split('\n').findIndex((one) => new RegExp(`\\b${found.key}\\b"?:`).test(one))
  const want = Object.keys(found.keys).join(', ')
  throw new Wrong(at + Math.max(0, line), `nothing reads the key ${JSON.stringify(found.key)} of ${kind}; want ${want}`)
}

// The first key that is none of these, and those that there are beside it.
function unreadIn(value: unknown, keys: Keys): { readonly key: string; readonly keys: Keys } | undefined {
  if (Array.isArray(value)) return value.map((one) => unreadIn(one, keys)).find((one) => one !== undefined)
  if (typeof value !== 'object' || value === null) return undefined
  for (const [key, one] of Object.entries(value)) {
    const below = Object.hasOwn(keys, key) ? keys[key] : undefined
    const found = below === undefined ? { key, keys } : below && unreadIn(one, below)
    if (found) return found
  }
  return undefined
}
