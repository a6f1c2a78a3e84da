import { writeAtomic } from '../os/files.ts'
import { readText } from '../os/reading.ts'
import type { PoolFolders } from './reservations.ts'

/**
 * The addresses of a pool that were freed less than `seconds` ago. An address without a time in the file, or with a
 * time in the future, does not rest.
 */
export function resting(place: PoolFolders, seconds: number): ReadonlySet<string> {
  return new Set(fresh(place, seconds).map((line) => line.slice(line.indexOf(' ') + 1)))
}

/**
 * Notes that addresses are about to be freed. Forgets the addresses whose rest is over. With `seconds` 0 it notes
 * nothing. Cannot fail: giving out an address too early is better than never freeing it.
 */
export function putToRest(place: PoolFolders, names: readonly string[], seconds: number): void {
  if (seconds === 0) return
  const now = Date.now()
  const lines = [...fresh(place, seconds), ...names.map((name) => `${now} ${name}`)]
  try {
    writeAtomic(`${place.own}/freed`, `${lines.join('\n')}\n`, { durable: false, by: `${place.own}/draft` })
  } catch {
    // A DEL must free its address even on a full disk.
  }
}

function fresh(place: PoolFolders, seconds: number): readonly string[] {
  if (seconds === 0) return []
  const now = Date.now()
  return (readText(`${place.own}/freed`) ?? '').split('\n').filter((line) => {
    const freed = Number.parseInt(line, 10)
    return freed <= now && now - freed < seconds * 1000
  })
}
