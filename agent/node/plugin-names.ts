import { readdirSync } from 'node:fs'

/** The names of all plugins. Bun runs this macro during the build and inserts its result into the executable. */
export function pluginNames(): string[] {
  return readdirSync(`${import.meta.dir}/../../plugins`)
    .flatMap((file) => /^(?!index\.)(.+)\.ts$/.exec(file)?.[1] ?? [])
    .sort()
}
