import { chmodSync, existsSync, mkdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'

/** Environment variables by which whoever starts a compiled program could turn it into something else. */
const DOORS = ['BUN_OPTIONS', 'BUN_BE_BUN', 'BUN_BYTECODE_ORDER_OUT']
const HUGE_PAGE = 2n << 20n
// Elf64_Ehdr, Elf64_Phdr and Elf64_Shdr of elf(5): where the tables are told, what an entry takes, and where it says what kind it is and where its bytes are.
const [PHOFF, SHOFF, PHNUM, SHNUM] = [32, 40, 56, 60]
const [PH_BYTES, SH_BYTES] = [56, 64]
const [PT_LOAD, PF_X] = [1, 1]

/** The Bun program that plumb is compiled onto, made once in a folder per version of it and of this file: a copy that reads none of Bun's own environment variables and, when `align` is set, whose code can lie in huge pages. Gives its path. Throws Error for a Bun that does not hold the variables, or has no code to move. */
export function template(folder: string, align: boolean): string {
  const made = join(folder, `bun-${Bun.version}-${Bun.hash(readFileSync(import.meta.path)).toString(36)}${align ? '-aligned' : ''}`)
  if (existsSync(made)) return made
  mkdirSync(folder, { recursive: true })
  const draft = `${made}.${process.pid}`
  const closedBun = closed(readFileSync(process.execPath))
  writeFileSync(draft, align ? aligned(closedBun) : closedBun)
  chmodSync(draft, 0o755)
  renameSync(draft, made)
  return made
}

// No environment variable starts with 0x01.
function closed(bytes: Buffer): Buffer {
  for (const name of DOORS) {
    let at = bytes.indexOf(name)
    if (at < 0) throw new Error(`Cannot close ${name}: Bun ${Bun.version} does not hold the name`)
    for (; at >= 0; at = bytes.indexOf(name, at + 1)) bytes[at] = 1
  }
  return bytes
}

// The same program with its code moved in the file, not in memory, to where the offset in a huge page is the same in both: a kernel whose page cache
// holds the file in huge pages then maps 2 MiB of code by one page fault instead of 32 (do_set_pmd of mm/memory.c).
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
