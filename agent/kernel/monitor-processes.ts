import { readdirSync } from 'node:fs'
import { readText } from '../../lib/os/reading.ts'
import type { NetworkName } from '../../lib/text/values.ts'

const MARK = 'PLUMB_MONITOR_OF'

/** What tells a monitor's process from others, in its environment: whose it is. */
export function markedAs(instance: NetworkName): Readonly<Record<string, string>> {
  return { [MARK]: instance }
}

/** Ends the monitors of an agent of this name that was killed, and gives how many there were. Nobody reads them any more, and they end by themselves only when they have something to tell. */
export function endOrphans(instance: NetworkName): number {
  const marked = readdirSync('/proc').filter((pid) => /^\d+$/.test(pid) && of(pid, 'environ').split('\0').includes(`${MARK}=${instance}`))
  // Below an agent that lives, in another container perhaps, they are in use.
  const orphans = marked.filter((pid) => of(/^PPid:\s*(\d+)$/m.exec(of(pid, 'status'))?.[1] ?? '0', 'comm') !== of('self', 'comm'))
  return orphans.filter(end).length
}

function end(pid: string): boolean {
  try {
    return process.kill(Number(pid), 'SIGTERM')
  } catch {
    // It has ended meanwhile.
    return false
  }
}

function of(pid: string, file: string): string {
  try {
    return readText(`/proc/${pid}/${file}`) ?? ''
  } catch {
    // Another user's, or gone between its opening and its reading.
    return ''
  }
}
