import type { Both } from './lease.ts'

/** The values of the present families, IPv4 first. */
export function both<T>({ v4, v6 }: Both<T>): T[] {
  return [...(v4 === undefined ? [] : [v4]), ...(v6 === undefined ? [] : [v6])]
}

/** Whether two pairs of strings are equal. */
export function isSame(one: Both<string>, other: Both<string>): boolean {
  return one.v4 === other.v4 && one.v6 === other.v6
}
