import { ifDiskAllows, remove, writeAtomic } from '../os/files.ts'
import type { Owner } from '../text/owner.ts'
import type { Saved } from './kinds/saved.ts'
import type { Settings } from './kinds/setting.ts'

// The order in which the reference plugin writes the keys.
const KEYS = ['mac', 'promisc', 'mtu', 'allmulti', 'txQLen'] as const

/** The file in which the reference plugin tuning keeps the values that its DEL restores. */
export function savedPath(dataDir: string, { containerId, ifname }: Owner): string {
  return `${dataDir}/${containerId}_${ifname}.json`
}

/**
 * The text of that file, byte for byte as the reference plugin writes it. It has the keys that `want` sets, with the
 * earlier values from `was`.
 */
export function savedText(want: Settings, was: Settings = {}): string {
  const asked = KEYS.flatMap((key) => (want[key] === undefined || was[key] === undefined ? [] : [[key, was[key]]]))
  return JSON.stringify(Object.fromEntries(asked), null, 1)
}

/** Writes such a file (mode 0600) or removes it. Removing also removes the draft that a killed writer left. */
export function keepSaved({ path, text }: Saved, isWanted: boolean): void {
  const draft = `${path}.draft`
  if (isWanted) writeAtomic(path, text, { durable: false, by: draft })
  else for (const one of [path, draft]) ifDiskAllows(`Cannot remove ${one}`, () => remove(one))
}
