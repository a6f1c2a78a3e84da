// The objects of the cluster, kept up to date: from the Kubernetes API, or from a folder of manifests. Policy and
// Services share one source. Begin with `openObjects`.
import { readFileSync, statSync } from 'node:fs'
import { parseAllDocuments } from 'yaml'
import { listFiles } from '../../lib/os/reading.ts'
import { ValueError } from '../../lib/text/errors.ts'
import { watchFolders } from '../scheduler/folder-watch.ts'
import { follow, UnavailableError } from '../scheduler/follow.ts'
import { pause } from '../scheduler/pause.ts'
import { type ApiSettings, accessOf } from './access.ts'
import { Api } from './api.ts'
import { Changes } from './changes.ts'
import { Collection, PATIENCE } from './collection.ts'
import { checkDocument, nearKind, withoutBlanks } from './document.ts'
import { apiVersionsOf, KINDS, type KindName, type ObjectKind, type Objects } from './kinds.ts'
import { namespaceOf } from './objects.ts'
import { objectAt, quoted } from './reading.ts'
import { UnservedError } from './served.ts'
import type { Reader, SharedCollection } from './shared-collection.ts'

/** Where the objects of the cluster come from: the Kubernetes API, or a folder of manifests. */
export type ObjectsWish = ({ readonly from: 'api' } & ApiSettings) | { readonly from: 'folder'; readonly dir: string }

/** The objects of the cluster. */
export interface ObjectSource {
  /** The objects of the kinds that are followed. Other kinds are empty. */
  readonly objects: Objects
  /** The source in words, for messages: `the Kubernetes API`, or the folder. */
  readonly origin: string
  /** Whether these kinds were listed completely at least once. Nothing is removed from the kernel before that. */
  isComplete(kinds: readonly KindName[]): boolean
  /** Why the objects of these kinds are not known yet, or may be out of date. Undefined while the source answers. */
  trouble(kinds: readonly KindName[]): string | undefined
  /** Objects that cannot be read, one sentence each. All others count. */
  refused(kinds: readonly KindName[]): readonly string[]
  /** The changes of these kinds, for one part of the agent. Call this before `run`. */
  changes(kinds: readonly KindName[], notify: () => void): Changes
  /** Keeps the objects up to date until the signal. */
  run(signal: AbortSignal): Promise<void>
}

/** How often a folder is read without an event of the kernel, because it may be another machine's. Milliseconds. */
const POLL_MS = 10_000
/** An API that fails for this long is reported. A server that starts again is back before that. Milliseconds. */
const AWAY_MS = 10_000
const REMOUNT = 'want its file system mounted, or the agent started again'
/** Files are written in groups. A change is read after this many milliseconds, together with those that follow. */
const QUIET_MS = 20
/**
 * How long a kind that the API does not serve is left alone: its CustomResourceDefinition may come at any time. A kind
 * that is only named can wait. Milliseconds, and as much again by chance.
 */
const [UNSERVED_MS, UNUSED_MS] = [5000, 60_000]

/**
 * Opens a source of these kinds. Reads nothing before `run`. `nodes` are the Nodes of the same API that somebody else
 * follows. Throws ValueError for an unusable way to the API.
 */
export function openObjects(
  wish: ObjectsWish,
  kinds: readonly KindName[],
  version: string,
  nodes?: SharedCollection,
): ObjectSource {
  return wish.from === 'folder'
    ? new FolderSource(wish.dir, kinds)
    : new ApiSource(new Api(accessOf(wish), `plumb-agent/${version}`), kinds, nodes)
}

type Mutable = { [K in KindName]: Map<string, unknown> }

/** No objects. */
export function noObjects(): Objects {
  return emptyMaps() as Objects
}

function emptyMaps(): Mutable {
  return Object.fromEntries(Object.keys(KINDS).map((kind) => [kind, new Map()])) as unknown as Mutable
}

/** Passes changes on to the parts of the agent. */
class Subscribers {
  readonly #all: Changes[] = []

  add(kinds: readonly KindName[], notify: () => void): Changes {
    const changes = new Changes(kinds, notify)
    this.#all.push(changes)
    return changes
  }

  note(kind: KindName, key?: string): void {
    for (const one of this.#all) if (one.kinds.includes(kind)) one.note(kind, key)
  }
}

/** The objects of the Kubernetes API: one list and one watch per kind. */
class ApiSource implements ObjectSource {
  readonly objects: Objects
  readonly origin = 'the Kubernetes API'
  readonly #api: Api
  readonly #collections: ReadonlyMap<KindName, Collection<unknown> | Reader<unknown>>
  readonly #subscribers = new Subscribers()
  /** Since when the requests of a kind fail, by performance.now(), and why. */
  readonly #failing = new Map<KindName, { readonly since: number; readonly why: string }>()
  #signal: AbortSignal | undefined

  constructor(api: Api, kinds: readonly KindName[], nodes?: SharedCollection) {
    this.#api = api
    const collectionOf = (kind: KindName) => {
      const changed = (key: string) => this.#subscribers.note(kind, key)
      if (kind !== 'nodes' || !nodes) return new Collection<unknown>(api, KINDS[kind] as ObjectKind<unknown>, changed)
      return nodes.reader({ project: KINDS.nodes.project, changed, ...this.#listener(kind) })
    }
    this.#collections = new Map(kinds.map((kind) => [kind, collectionOf(kind)]))
    const followed = [...this.#collections].map(([kind, { items }]) => [kind, items])
    this.objects = { ...noObjects(), ...Object.fromEntries(followed) }
  }

  isComplete(kinds: readonly KindName[]): boolean {
    return kinds.every((kind) => this.#collections.get(kind)?.isListed)
  }

  trouble(kinds: readonly KindName[]): string | undefined {
    const now = performance.now()
    const isListed = (kind: KindName) => this.#collections.get(kind)?.isListed
    const failing = kinds.flatMap((kind) => {
      const one = this.#failing.get(kind)
      return one && (!isListed(kind) || now - one.since >= AWAY_MS) ? [one.why] : []
    })
    return failing[0] ?? (kinds.every(isListed) ? undefined : this.#api.state().error)
  }

  refused(kinds: readonly KindName[]): readonly string[] {
    return kinds.flatMap((kind) => [...(this.#collections.get(kind)?.refused.values() ?? [])])
  }

  changes(kinds: readonly KindName[], notify: () => void): Changes {
    return this.#subscribers.add(kinds, notify)
  }

  async run(signal: AbortSignal): Promise<void> {
    this.#signal = signal
    const own = [...this.#collections].flatMap(([kind, one]) =>
      one instanceof Collection ? [[kind, one] as const] : [],
    )
    await Promise.all(own.map(([kind, one]) => this.#follow(kind, one, signal)))
  }

  // Notes how the requests of a kind go.
  #listener(kind: KindName): { answered(): void; failed(cause: unknown): void; listed(): void } {
    const note = () => this.#subscribers.note(kind)
    let isReported = false
    const answered = () => {
      this.#failing.delete(kind)
      if (isReported) note()
      isReported = false
    }
    const failed = (cause: unknown) => {
      if (!(cause instanceof UnavailableError) || this.#signal?.aborted) return
      const [before, now] = [this.#failing.get(kind), performance.now()]
      const since = before?.since ?? now
      this.#failing.set(kind, { since, why: cause.message })
      if ((isReported && before?.why === cause.message) || now - since < AWAY_MS) return
      isReported = true
      note()
    }
    // An empty list changes no object. The parts have to know all the same that it is complete.
    return { answered, failed, listed: note }
  }

  async #follow(kind: KindName, one: Collection<unknown>, signal: AbortSignal): Promise<void> {
    const { answered, failed, listed } = this.#listener(kind)
    const source = {
      known: () => one.known(),
      list: async (until: AbortSignal) => {
        try {
          await one.list(until)
          answered()
        } catch (cause) {
          const isUnserved = cause instanceof UnservedError
          if (isUnserved && cause.isAbsent) answered()
          else failed(cause)
          if (isUnserved) {
            listed()
            await pause((KINDS[kind].isUnused ? UNUSED_MS : UNSERVED_MS) * (1 + Math.random()), until)
          }
          throw cause
        } finally {
          listed()
        }
      },
      async *watch(after: string, until: AbortSignal) {
        try {
          yield* one.watch(after, until, answered)
        } catch (cause) {
          failed(cause)
          throw cause
        }
      },
      apply: (event: Parameters<typeof one.apply>[0]) => one.apply(event),
      relist: () => one.relist(),
    }
    await follow(source, PATIENCE, signal)
  }
}

/** The objects of the manifests in a folder: files .yaml, .yml and .json, with one or more documents each. */
class FolderSource implements ObjectSource {
  readonly objects: Objects
  readonly origin: string
  readonly #maps = emptyMaps()
  readonly #kinds: readonly KindName[]
  readonly #subscribers = new Subscribers()
  #refused: readonly string[] = []
  #away: string | undefined
  /** The device and the inode of the folder that was read last. */
  #id: string | undefined
  /** The file of each object, by kind and key. */
  #files: ReadonlyMap<string, string> = new Map()
  #isRead = false

  constructor(dir: string, kinds: readonly KindName[]) {
    this.origin = dir
    this.#kinds = kinds
    this.objects = this.#maps as unknown as Objects
  }

  isComplete(): boolean {
    return this.#isRead
  }

  trouble(): string | undefined {
    return this.#away
  }

  refused(): readonly string[] {
    return this.#refused
  }

  changes(kinds: readonly KindName[], notify: () => void): Changes {
    return this.#subscribers.add(kinds, notify)
  }

  async run(signal: AbortSignal): Promise<void> {
    let timer: ReturnType<typeof setTimeout> | undefined
    const read = () => {
      timer = undefined
      this.#read()
    }
    this.#read()
    await watchFolders([this.origin], () => (timer ??= setTimeout(read, QUIET_MS)), read, POLL_MS, signal)
    clearTimeout(timer)
  }

  #read(): void {
    const found = this.#find()
    const before = [this.#isRead, this.#away, this.#refused]
    this.#away = typeof found === 'string' ? found : undefined
    // A folder that is away changes no object that is known.
    if (typeof found !== 'string') this.#take(found)
    // The parts have to report it all the same, and also what was refused.
    if (!Bun.deepEquals(before, [this.#isRead, this.#away, this.#refused]))
      for (const kind of this.#kinds) this.#subscribers.note(kind)
  }

  // The manifests of the folder, or the reason why they cannot be read now. An empty mount point counts as unreadable.
  #find(): Manifests | string {
    try {
      const before = idOf(this.origin)
      const found = readManifests(this.origin)
      const id = idOf(this.origin)
      if (before === undefined || id === undefined)
        return `There is no folder ${this.origin}; want it made, or its file system mounted`
      if (before !== id) return `The folder ${this.origin} was replaced while it was read`
      if (this.#id !== undefined && this.#id !== id && found.files.size + found.failed.size === 0)
        return `${this.origin} is another folder than before, without manifests; ${REMOUNT}`
      this.#id = id
      return found
    } catch (cause) {
      if (typeof (cause as NodeJS.ErrnoException).code !== 'string') throw cause
      return `Cannot read the folder ${this.origin}: ${(cause as Error).message}`
    }
  }

  #take(found: Manifests): void {
    ;[this.#refused, this.#isRead] = [found.refused, true]
    const files = new Map(found.files)
    for (const kind of this.#kinds) {
      const [now, wanted] = [this.#maps[kind], new Map<string, unknown>(found.objects[kind])]
      // What was known of a faulty file stays. What stands for an unreadable object counts only when nothing was known.
      for (const [key, value] of now) {
        const name = `${kind} ${key}`
        const file = this.#files.get(name)
        const isReadable = wanted.has(key) && !found.closed.has(name)
        if (file === undefined || !found.failed.has(file) || isReadable) continue
        wanted.set(key, value)
        files.set(name, file)
      }
      const isChanged = (key: string) => !Bun.deepEquals(now.get(key), wanted.get(key))
      const changed = [...new Set([...now.keys(), ...wanted.keys()])].filter(isChanged)
      for (const key of changed) {
        if (wanted.has(key)) now.set(key, wanted.get(key))
        else now.delete(key)
        this.#subscribers.note(kind, key)
      }
    }
    this.#files = files
  }
}

function idOf(dir: string): string | undefined {
  const stats = statSync(dir, { throwIfNoEntry: false })
  return stats && `${stats.dev}-${stats.ino}`
}

/** What a folder of manifests holds. Objects are named by kind and key: `policies x/deny`. */
interface Manifests {
  readonly objects: Objects
  /** Why an object, or a file, cannot be read. */
  readonly refused: readonly string[]
  /** The file of each object. */
  readonly files: ReadonlyMap<string, string>
  /** The files with an error. */
  readonly failed: ReadonlySet<string>
  /** The objects that stand for unreadable ones. */
  readonly closed: ReadonlySet<string>
}

/**
 * Reads the manifests of a folder. An unreadable object is refused with its file and name, and all others count. A
 * namespace that only pods and policies name exists, too.
 */
export function readManifests(dir: string): Manifests {
  const found: Reading = { maps: emptyMaps(), refused: [], files: new Map(), failed: new Set(), closed: new Set() }
  const doubled: string[] = []
  // Hidden files are those of editors, and of mounts.
  for (const name of listFiles(dir).sort()) {
    if (name.startsWith('.')) continue
    const [file, before] = [`${dir}/${name}`, found.refused.length]
    if (/\.(ya?ml|json)$/.test(name))
      for (const raw of documentsOf(file, found.refused)) take(raw, file, found, doubled)
    else found.refused.push(`${file} is not read: want a file .yaml, .yml or .json, or the folder without it`)
    if (found.refused.length > before) found.failed.add(file)
  }
  const { maps, ...rest } = found
  rest.refused.push(...doubled)
  const objects = maps as unknown as Objects
  for (const { namespace } of [...objects.pods.values(), ...objects.policies.values()])
    if (!maps.namespaces.has(namespace)) maps.namespaces.set(namespace, namespaceOf({ metadata: { name: namespace } }))
  return { objects, ...rest }
}

interface Reading {
  readonly maps: Mutable
  readonly refused: string[]
  readonly files: Map<string, string>
  readonly failed: Set<string>
  readonly closed: Set<string>
}

const BY_MANIFEST = new Map(Object.entries(KINDS).map(([kind, { manifest }]) => [manifest, kind as KindName]))

function take(given: unknown, file: string, found: Reading, doubled: string[]): void {
  // A document may be empty: `---` at the end of a file.
  if (given === null) return
  const { kind, items } = given as { kind?: unknown; items?: unknown }
  if (typeof kind === 'string' && kind.endsWith('List') && Array.isArray(items)) {
    for (const item of items) take(item, file, found, doubled)
    return
  }
  const name = typeof kind === 'string' ? BY_MANIFEST.get(kind) : undefined
  if (name === undefined) {
    const meant =
      typeof kind === 'string' ? nearKind(kind, [...BY_MANIFEST.keys()]) : BY_MANIFEST.keys().toArray().join(', ')
    if (meant !== undefined) found.refused.push(`${file}: kind ${quoted(kind)} is not read: want ${meant}`)
    return
  }
  const raw = withoutBlanks(given, KINDS[name].custom !== undefined)
  const labels = objectAt(objectAt(raw, 'metadata'), 'labels')
  if (KINDS[name].without?.some((label) => Object.hasOwn(labels, label))) return
  const put = (value: Named | undefined, isClosed = false) => {
    if (!value) return
    const key = value.namespace === undefined ? value.name : `${value.namespace}/${value.name}`
    const other = found.files.get(`${name} ${key}`)
    const where = other === file ? 'twice in' : `in ${other} and in`
    if (other !== undefined) doubled.push(`${KINDS[name].manifest} ${key} is ${where} ${file}: the last one counts`)
    found.maps[name].set(key, value)
    found.files.set(`${name} ${key}`, file)
    if (isClosed) found.closed.add(`${name} ${key}`)
    for (const text of value.leftOut ?? []) found.refused.push(`${file}: ${text}`)
  }
  try {
    checkDocument(raw, KINDS[name].manifest, apiVersionsOf(KINDS[name]))
    put(KINDS[name].project(raw) as Named | undefined)
  } catch (cause) {
    if (!(cause instanceof ValueError)) throw cause
    put(KINDS[name].unreadable?.(raw) as Named | undefined, true)
    found.refused.push(`${file}: ${cause.message}`)
  }
}

interface Named {
  readonly namespace?: string
  readonly name: string
  readonly leftOut?: readonly string[]
}

function documentsOf(path: string, refused: string[]): unknown[] {
  try {
    const text = readFileSync(path, 'utf8')
    // A program that writes a file in place empties it first. What the file had stays until the rest is there.
    if (text === '') refused.push(`${path}: it is empty; want objects in it, or the file removed`)
    const documents = parseAllDocuments(text)
    return (Array.isArray(documents) ? documents : []).flatMap((one) => {
      if (one.errors[0]) refused.push(`${path}: ${one.errors[0].message.split('\n', 1)[0]}`)
      return one.errors.length > 0 ? [] : [one.toJSON()]
    })
  } catch (cause) {
    refused.push(`${path}: ${(cause as Error).message}`)
    return []
  }
}
