import { remove, writeAtomic } from '../os/files.ts'
import type { Owner } from '../text/owner.ts'
import type { Saved } from './kinds/saved.ts'
import type { Settings } from './kinds/setting.ts'

// In the order in which the reference plugin writes them.
const KEYS = ['mac', 'promisc', 'mtu', 'allmulti', 'txQLen'] as const

/** Where the reference plugin tuning keeps what its DEL puts back. */
export function savedPath(dataDir: string, { containerId, ifname }: Owner): string {
  return `${dataDir}/${containerId}_${ifname}.json`
}

/** That file's text for what is asked for, byte for byte as the reference writes it; `was` is what there was. */
export function savedText(want: Settings, was: Settings = {}): string {
  const asked = KEYS.flatMap((key) => (want[key] === undefined || was[key] === undefined ? [] : [[key, was[key]]]))
  return JSON.stringify(Object.fromEntries(asked), null, 1)
}

/** Writes such a file (0600), or removes it, with what a writer that was killed left beside it. */
export function keepSaved({ path, text }: Saved, isWanted: boolean): void {
  const draft = `${path}.draft`
  if (isWanted) writeAtomic(path, text, { durable: false, by: draft })
  else for (const one of [path, draft]) remove(one)
}
