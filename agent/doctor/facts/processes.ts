import { readlinkSync } from 'node:fs'
import { listFiles, readText } from '../../../lib/os/reading.ts'
import type { Fact } from './facts.ts'

/** A program that runs. */
export interface Process {
  readonly pid: number
  /** The command name, at most 15 characters. */
  readonly name: string
  /** The words that started it. */
  readonly argv: readonly string[]
}

/** The programs of the node's network namespace. */
export const processes: Fact<readonly Process[]> = { read: readProcesses, inAgent: { missing: 'the processes' } }

/** Reads the programs that are in this process's network namespace. Those that end meanwhile are left out. */
export function readProcesses(): Process[] {
  const own = readlinkSync('/proc/self/ns/net')
  return listFiles('/proc').flatMap((pid): Process[] => {
    if (!/^\d+$/.test(pid)) return []
    try {
      if (readlinkSync(`/proc/${pid}/ns/net`) !== own) return []
      const name = readText(`/proc/${pid}/comm`)?.trim() ?? ''
      const argv = (readText(`/proc/${pid}/cmdline`) ?? '').split('\0').slice(0, -1)
      return argv.length === 0 ? [] : [{ pid: Number(pid), name, argv }]
    } catch {
      return []
    }
  })
}
