import { readRegular } from '../../../lib/os/reading.ts'
import { parseSubnetEnv, type SubnetEnv } from '../../../lib/text/subnet-env.ts'
import type { Fact } from './facts.ts'

/** The file subnet.env. `env` is absent when there is no such file, or when it cannot be used. */
export interface SubnetFile {
  readonly path: string
  readonly isThere: boolean
  readonly env?: SubnetEnv
  /** Why its content cannot be used. */
  readonly fault?: string
}

/** The file subnet.env. */
export const subnetFile: Fact<SubnetFile> = {
  read: ({ places }) => readSubnetFile(places.subnetFile),
  inAgent: { missing: 'subnet.env' },
}

/** Reads subnet.env. Throws Error when the file cannot be read. */
export function readSubnetFile(path: string): SubnetFile {
  try {
    const text = readRegular(path)
    if (text === undefined) return { path, isThere: false }
    return { path, isThere: true, env: parseSubnetEnv(text, path) }
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code !== undefined) throw cause
    return { path, isThere: true, fault: (cause as Error).message }
  }
}
