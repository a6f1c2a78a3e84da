import { readdirSync } from 'node:fs'
import { readText } from '../../lib/os/reading.ts'
import type { NetworkName } from '../../lib/text/values.ts'

const MARK = 'PLUMB_MONITOR_OF'

/** The environment variable that marks a monitor process. Its value is the agent's name. */
export function markedAs(instance: NetworkName): Readonly<Record<string, string>> {
  return { [MARK]: instance }
}

/**
 * Ends the monitors of a killed agent of this name, and gives their number. Nobody reads their output any more. Without
 * this, a monitor ends only when it next writes.
 */
export function endOrphans(instance: NetworkName): number {
  const marked = readdirSync('/proc').filter(
    (pid) => /^\d+$/.test(pid) && of(pid, 'environ').split('\0').includes(`${MARK}=${instance}`),
  )
  // A monitor with a living agent as parent is in use. That agent may run in another container.
  const orphans = marked.filter(
    (pid) => of(/^PPid:\s*(\d+)$/m.exec(of(pid, 'status'))?.[1] ?? '0', 'comm') !== of('self', 'comm'),
  )
  return orphans.filter(end).length
}

function end(pid: string): boolean {
  try {
    return process.kill(Number(pid), 'SIGTERM')
  } catch {
    // The process has ended meanwhile.
    return false
  }
}

function of(pid: string, file: string): string {
  try {
    return readText(`/proc/${pid}/${file}`) ?? ''
  } catch {
    // The process belongs to another user, or it ended between the open and the read.
    return ''
  }
}
