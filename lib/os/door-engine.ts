// The door of the small engine, on which the plugins run. native/host.c makes `host`. The exports are those of door.ts.
import type { Libc } from './door.ts'

declare const host: {
  readonly env: Readonly<Record<string, string | undefined>>
  readonly args: readonly string[]
  pid(): number
  readonly isArm: boolean
  /** One function for each name of `Libc`. The arguments are numbers, bigints, typed arrays, or null. */
  readonly libc: Libc
  errno(): number
  pointerTo(bytes: NodeJS.TypedArray): number
  exit(status: number): never
}

/** As in door.ts. */
export const { env, pid, isArm, pointerTo, errno, exit } = host
/** As in door.ts. */
export function calledAs(): string {
  return host.args[0] ?? ''
}

/** As in door.ts. */
export function args(): readonly string[] {
  return host.args.slice(1)
}

/** As in door.ts. */
export function executable(): string {
  const path = new Uint8Array(4096)
  const length = Number(host.libc.readlink(new TextEncoder().encode('/proc/self/exe\0'), path, BigInt(path.length)))
  return length > 0 ? new TextDecoder().decode(path.subarray(0, length)) : calledAs()
}

/** As in door.ts. */
export function sleep(ms: number): void {
  host.libc.usleep(Math.round(ms * 1000))
}

/** As in door.ts. */
export function libc(): Libc {
  return host.libc
}
