import { join } from 'node:path'
import { listFiles, readText } from '../../../lib/os/reading.ts'
import type { Fact } from './facts.ts'

/** A configuration file of another program. */
export interface Configuration {
  readonly path: string
  readonly text: string
}

const SINGLE = ['/etc/systemd/networkd.conf', '/etc/NetworkManager/NetworkManager.conf']
// A file of a folder hides that of the same name in a later one (man systemd.syntax(7), NetworkManager.conf(5)).
const FOLDERS = [
  { dirs: ['/etc', '/run', '/usr/local/lib', '/usr/lib'].map((dir) => `${dir}/systemd/networkd.conf.d`), end: '.conf' },
  { dirs: ['/etc', '/run', '/usr/local/lib', '/usr/lib'].map((dir) => `${dir}/systemd/network`), end: '.network' },
  { dirs: ['/etc', '/run', '/usr/lib'].map((dir) => `${dir}/NetworkManager/conf.d`), end: '.conf' },
]

/** The configuration files of systemd-networkd and NetworkManager. */
export const configurations: Fact<readonly Configuration[]> = {
  read: readConfigurations,
  inAgent: { missing: 'the files of other programs' },
}

/** Reads the files of systemd-networkd and of NetworkManager, in the order in which they count. Throws Error. */
export function readConfigurations(): Configuration[] {
  const single = SINGLE.flatMap((path) => fileAt(path))
  return [...single, ...FOLDERS.flatMap(({ dirs, end }) => filesOf(dirs, end))]
}

function filesOf(dirs: readonly string[], end: string): Configuration[] {
  const paths = new Map<string, string>()
  for (const dir of dirs)
    for (const name of listFiles(dir)) if (name.endsWith(end) && !paths.has(name)) paths.set(name, join(dir, name))
  return [...paths].sort(([one], [other]) => (one < other ? -1 : 1)).flatMap(([, path]) => fileAt(path))
}

function fileAt(path: string): Configuration[] {
  const text = readText(path)
  return text === undefined ? [] : [{ path, text }]
}
