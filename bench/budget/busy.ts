import { readFileSync } from 'node:fs'

/**
 * Nanoseconds, and so instructions, for which anything but the idle task ran on the machine's one processor
 * (Documentation/scheduler/sched-stats.rst: field 7 of a processor). A task's time is added when it stops to run.
 */
export function busy(): number {
  return Number(/^cpu0 (.*)$/m.exec(readFileSync('/proc/schedstat', 'utf8'))?.[1]?.split(' ')[6])
}
