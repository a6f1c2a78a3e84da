import type { Rendered } from '../cni/plugin.ts'
import { ifDiskAllows, remove, writeAtomic } from '../os/files.ts'
import { log } from '../os/log.ts'
import { listFiles, readRegular } from '../os/reading.ts'
import { fileName, type Owner } from '../text/owner.ts'
import { brief, type NetworkName } from '../text/values.ts'

/** The kept file of an attachment: the configuration that the delegate got on ADD. */
export interface SavedConf {
  readonly path: string
  readonly containerId: string
  /** Absent for a file of the flannel plugin. The name of such a file is only the container id. */
  readonly ifname?: string
  /** Absent when the text is no configuration: a power loss cut the file, or another program wrote it. */
  readonly conf?: Rendered
}

/**
 * Writes the configuration `asked` of an attachment to disk (mode 0600), before the delegate gets it. Returns a
 * function that restores the earlier file. The function removes the file when there was none.
 */
export function keep(dir: string, owner: Owner, asked: string): () => void {
  const path = pathOf(dir, owner)
  const before = textOf(path)
  const write = (text: string) => writeAtomic(path, text, { by: draftOf(dir, owner) })
  write(asked)
  return () => (before === undefined ? forget(path) : write(before))
}

/**
 * The kept file of an attachment: plumb's own, or else the file of the flannel plugin. Undefined when there is no file,
 * or when the file belongs to another network.
 */
export function savedFor(dir: string, owner: Owner): SavedConf | undefined {
  const { containerId, ifname, network } = owner
  const own = { path: pathOf(dir, owner), containerId, ifname }
  for (const one of [own, { path: `${dir}/${containerId}`, containerId }]) {
    const text = textOf(one.path)
    const conf = text === undefined ? undefined : read(text)
    if (text !== undefined && (conf === undefined || conf['name'] === network)) return { ...one, ...(conf && { conf }) }
  }
  return undefined
}

/**
 * The readable kept files of a network, and the drafts that killed writers left. Leaves out the attachments `owners`.
 */
export function savedForOthers(dir: string, network: NetworkName, owners: readonly Owner[]): SavedConf[] {
  const drafts = listed(dir).flatMap((name) => {
    const [, containerId, ifname] = name.startsWith(`.${brief(network)}:`) ? name.split(':') : []
    return containerId !== undefined && ifname !== undefined ? [{ path: `${dir}/${name}`, containerId, ifname }] : []
  })
  return [...savedFiles(dir, network), ...drafts].filter((one) => !isKeptFor(one, owners))
}

function savedFiles(dir: string, network: NetworkName): SavedConf[] {
  return listed(dir).flatMap((name) => {
    const [, containerId, , ifname] = /^([a-zA-Z0-9+][\w.-]*)(:(.+))?$/.exec(name) ?? []
    const path = `${dir}/${name}`
    const conf = containerId === undefined ? undefined : read(textOf(path) ?? '')
    return containerId !== undefined && conf?.['name'] === network
      ? [{ path, containerId, ...(ifname && { ifname }), conf }]
      : []
  })
}

// A file of the flannel plugin stands for all attachments of its container.
function isKeptFor({ containerId, ifname }: SavedConf, owners: readonly Owner[]): boolean {
  return owners.some((owner) =>
    ifname === undefined
      ? owner.containerId === containerId
      : brief(owner.containerId) === containerId && owner.ifname === ifname,
  )
}

/** Removes a kept file. The next DEL or GC finds a file that the disk does not let go. */
export function forget(path: string): void {
  ifDiskAllows(`Cannot remove ${path}, though what it names is gone`, () => remove(path))
}

/** The path of the draft that a killed writer left for an attachment. Undefined when there is none. */
export function leftFor(dir: string, owner: Owner): string | undefined {
  const path = draftOf(dir, owner)
  return textOf(path) === undefined ? undefined : path
}

function draftOf(dir: string, owner: Owner): string {
  return `${dir}/.${fileName(owner)}`
}

// A container id has no colon. So plumb's file names never equal those of the flannel plugin.
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

// The errors for a path where no file can exist. They count as `no file`, because DEL must not fail for a folder that
// ADD refused.
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
