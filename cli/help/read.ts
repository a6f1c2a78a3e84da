import { existsSync, readdirSync, readFileSync } from 'node:fs'

/** The pages of docs/plugins by the name of their plugin, as Markdown; `plugins` is the one of them all. Those of plugins that are not here are left out. A macro: Bun runs it while it builds the executable, and puts in what it returns. */
export function pagesOf(): Record<string, string> {
  const root = `${import.meta.dir}/../..`
  const names = readdirSync(`${root}/docs/plugins`)
    .map((file) => file.replace(/\.md$/, ''))
    .sort()
  return Object.fromEntries(names.filter((name) => name === 'README' || existsSync(`${root}/plugins/${name}.ts`)).map((name) => [name === 'README' ? 'plugins' : name, readFileSync(`${root}/docs/plugins/${name}.md`, 'utf8')]))
}
