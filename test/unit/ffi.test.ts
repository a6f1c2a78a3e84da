import { FFIType } from 'bun:ffi'
import assert from 'node:assert/strict'
import { dlopen, TYPES } from '../../lib/ffi.ts'

describe('ffi', () => {
  it('TYPES are those of bun:ffi', () => {
    assert.deepEqual(TYPES, { i32: FFIType.i32, i64: FFIType.i64, u64: FFIType.u64, ptr: FFIType.ptr })
  })

  it('dlopen() gives the calls of a library, and throws for one that is not there and for a call that it does not have', () => {
    const call = { args: [], returns: TYPES.i32 }
    assert.equal(dlopen('libc.so.6', { getpid: call }).symbols.getpid(), process.pid)
    assert.throws(() => dlopen('libnone.so.6', { getpid: call }), /libnone/)
    assert.throws(() => dlopen('libc.so.6', { no_such_call: call }), /no_such_call/)
  })
})
