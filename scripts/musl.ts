import { existsSync, globSync } from 'node:fs'
import { join } from 'node:path'
import { CACHE } from './package/runtime.ts'
import { unpack } from './unpack.ts'

const MUSL = join(CACHE, 'musl')

/** The file of the C library musl, which is its loader too. Undefined when it is not unpacked. */
export function musl(): string | undefined {
  return globSync(join(MUSL, 'lib/ld-musl-*.so.1'))[0]
}

/** Unpacks musl outside the checkout, if it is missing, and prints a line on stderr. Throws Error when that fails. */
export async function unpackMusl(): Promise<void> {
  if (existsSync(MUSL)) return
  process.stderr.write(
    `setup: unpacking musl in ${MUSL} (a test runs plugins where there is no other C library; it is not installed)\n`,
  )
  await unpack(MUSL, ['musl'])
}
