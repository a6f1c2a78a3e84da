import type { Rendered } from '../cni/plugin.ts'
import { remove, writeAtomic } from '../os/files.ts'
import { log } from '../os/log.ts'
import { listFiles, readRegular } from '../os/reading.ts'
import { fileName, type Owner } from '../text/owner.ts'
import { brief, type NetworkName } from '../text/values.ts'

/** What a plugin was asked for an attachment, as it stands on disk. */
export interface Kept {
  readonly path: string
  readonly containerId: string
  /** Absent in a file of flannel's, whose name is the container id alone. */
  readonly ifname?: string
  /** Absent when the file cannot be read: torn by a power loss, or somebody else's. */
  readonly conf?: Rendered
}

/** Keeps what a plugin is asked for an attachment, on disk before it is asked (0600); gives what puts back what was kept before, or nothing. */
export function keep(dir: string, owner: Owner, asked: string): () => void {
  const path = pathOf(dir, owner)
  const before = textOf(path)
  const write = (text: string) => writeAtomic(path, text, { by: draftOf(dir, owner) })
  write(asked)
  return () => (before === undefined ? forget(path) : write(before))
}

/** What is kept for an attachment, by plumb or else by flannel's plugin; undefined when nothing is, or when it is of another network. */
export function keptFor(dir: string, owner: Owner): Kept | undefined {
  const { containerId, ifname, network } = owner
  const own = { path: pathOf(dir, owner), containerId, ifname }
  for (const one of [own, { path: `${dir}/${containerId}`, containerId }]) {
    const text = textOf(one.path)
    const conf = text === undefined ? undefined : read(text)
    if (text !== undefined && (conf === undefined || conf['name'] === network)) return { ...one, ...(conf && { conf }) }
  }
  return undefined
}

/** Everything that is kept for a network and can be read, but for these attachments; of others also what a writer that was killed left. */
export function keptBeside(dir: string, network: NetworkName, owners: readonly Owner[]): Kept[] {
  const drafts = listed(dir).flatMap((name) => {
    const [, containerId, ifname] = name.startsWith(`.${brief(network)}:`) ? name.split(':') : []
    return containerId !== undefined && ifname !== undefined ? [{ path: `${dir}/${name}`, containerId, ifname }] : []
  })
  return [...keptOf(dir, network), ...drafts].filter((one) => !isKeptFor(one, owners))
}

function keptOf(dir: string, network: NetworkName): Kept[] {
  return listed(dir).flatMap((name) => {
    const [, containerId, , ifname] = /^([a-zA-Z0-9+][\w.-]*)(:(.+))?$/.exec(name) ?? []
    const path = `${dir}/${name}`
    const conf = containerId === undefined ? undefined : read(textOf(path) ?? '')
    return containerId !== undefined && conf?.['name'] === network ? [{ path, containerId, ...(ifname && { ifname }), conf }] : []
  })
}

// What flannel's plugin kept is for all of its container's attachments.
function isKeptFor({ containerId, ifname }: Kept, owners: readonly Owner[]): boolean {
  return owners.some((owner) => (ifname === undefined ? owner.containerId === containerId : brief(owner.containerId) === containerId && owner.ifname === ifname))
}

/** Forgets it. */
export function forget(path: string): void {
  remove(path)
}

/** What a writer that was killed left of what it was to keep for an attachment; undefined when nothing is. */
export function leftFor(dir: string, owner: Owner): string | undefined {
  const path = draftOf(dir, owner)
  return textOf(path) === undefined ? undefined : path
}

function draftOf(dir: string, owner: Owner): string {
  return `${dir}/.${fileName(owner)}`
}

// A container id has no colon, so that no name of ours is one of flannel's.
function pathOf(dir: string, { containerId, ifname }: Owner): string {
  return `${dir}/${brief(containerId)}:${ifname}`
}

function read(text: string): Rendered | undefined {
  try {
    const conf = JSON.parse(text)
    return typeof conf?.type === 'string' ? conf : undefined
  } catch {
    return undefined
  }
}

// Where no file can be, none is kept: DEL must not fail for a folder that ADD refused.
const NOWHERE = ['ENOTDIR', 'ENAMETOOLONG', 'ENOENT']

function textOf(path: string): string | undefined {
  try {
    return readRegular(path)
  } catch (cause) {
    const { code, message } = cause as NodeJS.ErrnoException
    if (code === undefined) log(`plumb: Cannot use ${path}: ${message}`)
    else if (!NOWHERE.includes(code)) throw cause
    return undefined
  }
}

function listed(dir: string): string[] {
  try {
    return listFiles(dir)
  } catch (cause) {
    if (NOWHERE.includes((cause as NodeJS.ErrnoException).code ?? '')) return []
    throw cause
  }
}
