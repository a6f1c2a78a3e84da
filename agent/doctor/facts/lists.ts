import { accessSync, closeSync, constants, openSync, readSync } from 'node:fs'
import { join } from 'node:path'
import { listFiles } from '../../../lib/os/reading.ts'
import { loadFile, type NetworkList } from '../../../lib/runtime/network-list.ts'

/** What a runtime reads: the networks in its folder, and the plugins in others. */
export interface Lists {
  readonly dir: string
  /** In the order of the runtime. Kubernetes' pods get the first. */
  readonly files: readonly ListFile[]
  readonly binDirs: readonly string[]
  /** The plugins that the lists name, and the plugins of their pools. */
  readonly plugins: readonly Plugin[]
}
/** A file with a network. `list` or `fault` is there. */
export interface ListFile {
  readonly path: string
  readonly list?: NetworkList
  /** Why the file cannot be used. */
  readonly fault?: string
}
/** A plugin that a list names. */
export interface Plugin {
  readonly type: string
  /** The first file of this name in the folders. Undefined when there is none. */
  readonly path: string | undefined
  readonly isExecutable: boolean
  /** The machine in its ELF header, such as `aarch64`. Undefined for another kind of file. */
  readonly machine: string | undefined
}

/** Reads the configured networks. Throws Error when a folder cannot be read. */
export function readLists(dir: string, binDirs: readonly string[]): Lists {
  const names = listFiles(dir).filter((name) => /\.(conflist|conf|json)$/.test(name))
  const files = names.sort().map((name): ListFile => {
    const path = join(dir, name)
    try {
      return { path, list: loadFile(dir, name) }
    } catch (cause) {
      return { path, fault: (cause as Error).message }
    }
  })
  const types = files.flatMap(({ list }) => (list ? typesOf(list) : []))
  return { dir, files, binDirs, plugins: [...new Set(types)].map((type) => pluginOf(type, binDirs)) }
}

/** The folders of networks and plugins that an agent was given. */
export interface OwnFolders {
  readonly confDir: string
  readonly binDir: string
  /** The agent installs a network and plugins there. */
  readonly install: boolean
}

/**
 * Makes the reader of the networks for an agent. A runtime may read another folder, as that of k3s does. So the reader
 * gives undefined until the agent has installed a network there, or has seen one that leads to it. It throws Error when
 * a folder cannot be read. It reads a few small files.
 */
export function listsReader({ confDir, binDir, install }: OwnFolders): () => Lists | undefined {
  let isOwn = install
  return () => {
    const found = readLists(confDir, [binDir])
    isOwn ||= found.files.some(({ list }) => list !== undefined && isOfAgent(list))
    return isOwn ? found : undefined
  }
}

/** Whether pods of this network are the agent's: the plugin flannel takes their subnet from it. */
export function isOfAgent({ plugins }: NetworkList): boolean {
  return plugins.some(({ type }) => type === 'flannel')
}

/** The plugins that a list starts: those that it names, their pools, and what flannel starts. */
export function typesOf({ plugins }: NetworkList): string[] {
  return plugins.flatMap(({ type, conf }) => [
    type,
    ...typeIn(conf['ipam']),
    ...(type === 'flannel' ? ['host-local', ...delegateOf(conf['delegate'])] : []),
  ])
}

function delegateOf(value: unknown): string[] {
  const [type = 'bridge'] = typeIn(value)
  return [type]
}

function typeIn(value: unknown): string[] {
  const { type } = (value ?? {}) as { type?: unknown }
  return typeof type === 'string' && type !== '' ? [type] : []
}

function pluginOf(type: string, binDirs: readonly string[]): Plugin {
  for (const dir of binDirs) {
    const path = join(dir, type)
    if (!isThere(path, constants.F_OK)) continue
    return { type, path, isExecutable: isThere(path, constants.X_OK), machine: machineOf(path) }
  }
  return { type, path: undefined, isExecutable: false, machine: undefined }
}

function isThere(path: string, mode: number): boolean {
  try {
    accessSync(path, mode)
    return true
  } catch {
    return false
  }
}

// elf(5): the machine is at byte 18.
const MACHINES: Readonly<Record<number, string>> = { 62: 'x86_64', 183: 'aarch64', 40: 'arm', 243: 'riscv64' }

function machineOf(path: string): string | undefined {
  try {
    const [fd, head] = [openSync(path, 'r'), Buffer.alloc(20)]
    readSync(fd, head)
    closeSync(fd)
    if (head.subarray(0, 4).toString('latin1') !== '\x7fELF') return undefined
    const machine = head.readUInt16LE(18)
    return MACHINES[machine] ?? `machine ${machine}`
  } catch {
    return undefined
  }
}
