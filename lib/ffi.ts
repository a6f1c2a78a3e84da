import type * as Native from 'bun:ffi'

// What `bun:ffi` is made of, without that module around it: JavaScript that Bun reads anew in each process, 0.15 ms of a plugin's start.
const { FFI } = Bun as unknown as { readonly FFI: Pick<typeof Native, 'dlopen' | 'ptr' | 'read'> }

/** As `bun:ffi` has them. */
export const { ptr, read } = FFI

/** The types of arguments and results that plumb's calls need, by their names in `bun:ffi`. */
export const TYPES = { i32: 5 as Native.FFIType.i32, i64: 7 as Native.FFIType.i64, u64: 8 as Native.FFIType.u64, ptr: 12 as Native.FFIType.ptr }

/** A library's calls, as `bun:ffi` has it. Throws Error, which FFI itself gives back, for a library that cannot be opened and for a call that it does not have. */
export function dlopen<Calls extends Record<string, Native.FFIFunction>>(path: string, calls: Calls): Native.Library<Calls> {
  const opened: unknown = FFI.dlopen(path, calls)
  if (opened instanceof Error) throw opened
  return opened as Native.Library<Calls>
}
