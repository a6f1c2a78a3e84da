import { libc, pointerTo } from './door.ts'

/** An instruction of classic BPF (linux/filter.h): what it does, jump when true, jump when false, operand. */
export type Instruction = readonly [code: number, yes: number, no: number, operand: number]

/**
 * Codes of instructions. Loads are from an offset, or from an offset behind X. `loadX` sets X, and `loadXHeader` sets it
 * to the length of the IPv4 header at an offset. `some` is true when some of these bits are set.
 */
export const BPF = {
  loadByte: 0x30,
  loadHalf: 0x28,
  loadByteX: 0x50,
  loadHalfX: 0x48,
  loadX: 0x01,
  loadXHeader: 0xb1,
  equal: 0x15,
  some: 0x45,
} as const

const [SOL_SOCKET, SO_ATTACH_FILTER, END] = [1, 26, 0x06]
// The most bytes of a packet that passes.
const ALL_BYTES = 0xffff
// struct sock_filter and struct sock_fprog.
const [INSTRUCTION_BYTES, PROGRAM_BYTES] = [8, 16]

/**
 * Lets only some packets through to a socket. A packet passes when it comes to the end of the instructions. A jump one
 * further refuses it. Returns false when the kernel refuses the filter; `errno` says why.
 */
export function filterPackets(fd: number, instructions: readonly Instruction[]): boolean {
  const all: readonly Instruction[] = [...instructions, [END, 0, 0, ALL_BYTES], [END, 0, 0, 0]]
  const code = new DataView(new ArrayBuffer(all.length * INSTRUCTION_BYTES))
  for (const [i, [what, yes, no, operand]] of all.entries()) {
    const at = i * INSTRUCTION_BYTES
    code.setUint16(at, what, true)
    code.setUint8(at + 2, yes)
    code.setUint8(at + 3, no)
    code.setUint32(at + 4, operand, true)
  }
  const bytes = new Uint8Array(code.buffer)
  const program = new BigUint64Array([BigInt(all.length), BigInt(pointerTo(bytes))])
  const isSet = libc().setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, program, BigInt(PROGRAM_BYTES)) === 0
  // `program` holds only the address of `bytes`. This write keeps the garbage collector from freeing them before.
  bytes.fill(0)
  return isSet
}
