import { readlinkSync } from 'node:fs'
import { readText } from '../../lib/os/reading.ts'
import { isOwn } from './run.ts'

/** A program that changed rules of nft, as the kernel names it. */
export interface Program {
  /** Of the machine's first namespace of processes. Other namespaces have other numbers. */
  readonly pid: number
  /** The command name, at most 15 characters. */
  readonly name: string
}
/** A program that undid what the agent had made. */
export interface Undoer {
  readonly name: string
  /** Absent in a container with processes of its own. */
  readonly pid?: number
  /** The program that started it. Absent when it had ended before the kernel's message was read. */
  readonly parent?: Program
}

/** The tools that programs start to change rules. The agent starts them, too. */
export const RULE_TOOLS = /^(nft|ip6?tables|xtables-)/
// include/linux/proc_ns.h, PROC_PID_INIT_INO
const FIRST = 'pid:[4026531836]'
const isInFirst = () => readlinkSync('/proc/self/ns/pid') === FIRST

/**
 * The program of another one that made a transaction. Undefined for the agent itself and for what it has started. A
 * process that has ended has no parent anymore.
 */
export function undoerOf({ pid, name }: Program): Undoer | undefined {
  // There, nobody can tell the agent's own tools from those of others.
  if (!isInFirst()) return RULE_TOOLS.test(name) || name === fileOf(process.pid, 'comm').trim() ? undefined : { name }
  if (pid === process.pid || isOwn(pid)) return undefined
  const parent = Number(/^PPid:\s*(\d+)$/m.exec(fileOf(pid, 'status'))?.[1] ?? 0)
  if (parent === process.pid) return undefined
  const comm = parent > 1 ? fileOf(parent, 'comm').trim() : ''
  return comm === '' ? { pid, name } : { pid, name, parent: { pid: parent, name: comm } }
}

function fileOf(pid: number, name: string): string {
  try {
    return readText(`/proc/${pid}/${name}`) ?? ''
  } catch {
    // It has ended meanwhile (ESRCH).
    return ''
  }
}
