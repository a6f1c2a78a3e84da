import { readdirSync } from 'node:fs'

/** The names of all plugins. A macro: Bun runs it while it builds the executable, and puts in what it returns. */
export function pluginNames(): string[] {
  return readdirSync(`${import.meta.dir}/../../plugins`)
    .flatMap((file) => /^(?!index\.)(.+)\.ts$/.exec(file)?.[1] ?? [])
    .sort()
}
