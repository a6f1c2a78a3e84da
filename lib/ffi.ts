import type { FFIType } from 'bun:ffi'

/**
 * What `bun:ffi` is made of, without that module around it: JavaScript that Bun reads anew in each process, 0.15 ms of a plugin's start. For a library that
 * cannot be opened `dlopen` gives the Error, and does not throw it.
 */
export const { dlopen, ptr, read } = (Bun as unknown as { readonly FFI: Pick<typeof import('bun:ffi'), 'dlopen' | 'ptr' | 'read'> }).FFI

/** The types of arguments and results that its calls need, by their names in `bun:ffi`. */
export const TYPES = { i32: 5 as FFIType.i32, i64: 7 as FFIType.i64, u64: 8 as FFIType.u64, ptr: 12 as FFIType.ptr }
