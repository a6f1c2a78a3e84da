import { chmodSync, existsSync, mkdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'

/** Environment variables that can turn a compiled Bun program into another program at its start. */
const DOORS = ['BUN_OPTIONS', 'BUN_BE_BUN', 'BUN_BYTECODE_ORDER_OUT']
const HUGE_PAGE = 2n << 20n
// Byte offsets, entry sizes and values of Elf64_Ehdr, Elf64_Phdr and Elf64_Shdr (elf(5)). The offsets in Elf64_Ehdr lead to the tables of
// segments and sections. A segment's type and flags show the code.
const [PHOFF, SHOFF, PHNUM, SHNUM] = [32, 40, 56, 60]
const [PH_BYTES, SH_BYTES] = [56, 64]
const [PT_LOAD, PF_X] = [1, 1]

/** A Bun program that plumb can be compiled onto. `arch` is a name of Node's `process.arch`. */
export interface Runtime {
  readonly path: string
  readonly arch: 'x64' | 'arm64'
}

/**
 * Makes the Bun program that plumb is compiled onto, and returns its path. The folder keeps one copy per version of Bun, per architecture
 * and per version of this file. The copy reads none of Bun's own environment variables. With `align` its code can lie in huge pages. Throws
 * Error for a Bun that does not hold the variables, or has no code to move.
 */
export function template(folder: string, align: boolean, { path, arch }: Runtime): string {
  const made = join(folder, `bun-${Bun.version}-${arch}-${Bun.hash(readFileSync(import.meta.path)).toString(36)}${align ? '-aligned' : ''}`)
  if (existsSync(made)) return made
  mkdirSync(folder, { recursive: true })
  const draft = `${made}.${process.pid}`
  const closedBun = closed(readFileSync(path))
  writeFileSync(draft, align ? aligned(closedBun) : closedBun)
  chmodSync(draft, 0o755)
  renameSync(draft, made)
  return made
}

// Overwrites the first byte of each name with 0x01. No environment variable starts with 0x01.
function closed(bytes: Buffer): Buffer {
  for (const name of DOORS) {
    let at = bytes.indexOf(name)
    if (at < 0) throw new Error(`Cannot close ${name}: Bun ${Bun.version} does not hold the name`)
    for (; at >= 0; at = bytes.indexOf(name, at + 1)) bytes[at] = 1
  }
  return bytes
}

// Moves the code in the file, not in memory, until its offset within a huge page is the same in both. The kernel's page cache may hold the
// file in huge pages. Then the kernel maps 2 MiB of code by one page fault instead of 32 (do_set_pmd of mm/memory.c).
function aligned(bytes: Buffer): Buffer {
  const table = (at: number, count: number, size: number) => Array.from({ length: bytes.readUInt16LE(count) }, (_, nth) => Number(bytes.readBigUInt64LE(at)) + nth * size)
  const [segments, sections] = [table(PHOFF, PHNUM, PH_BYTES), table(SHOFF, SHNUM, SH_BYTES)]
  const code = segments.find((at) => bytes.readUInt32LE(at) === PT_LOAD && (bytes.readUInt32LE(at + 4) & PF_X) !== 0)
  if (code === undefined) throw new Error(`Cannot move the code of Bun ${Bun.version}: it has no segment to execute`)
  const [offset, address] = [bytes.readBigUInt64LE(code + 8), bytes.readBigUInt64LE(code + 16)]
  const gap = (address - offset) & (HUGE_PAGE - 1n)
  for (const at of [SHOFF, ...segments.map((one) => one + 8), ...sections.map((one) => one + 24)]) {
    const old = bytes.readBigUInt64LE(at)
    if (old >= offset) bytes.writeBigUInt64LE(old + gap, at)
  }
  return Buffer.concat([bytes.subarray(0, Number(offset)), Buffer.alloc(Number(gap)), bytes.subarray(Number(offset))])
}
