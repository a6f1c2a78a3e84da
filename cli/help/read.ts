import { existsSync, readdirSync, readFileSync } from 'node:fs'

/**
 * Returns the pages of docs/plugins as Markdown, by the name of the plugin. The name `plugins` stands for the page
 * about all plugins. Pages of plugins that do not exist in plugins/ are left out. This is a macro: Bun runs it during
 * the build and inserts the returned value into the executable.
 */
export function pagesOf(): Record<string, string> {
  const root = `${import.meta.dir}/../..`
  const names = readdirSync(`${root}/docs/plugins`)
    .map((file) => file.replace(/\.md$/, ''))
    .sort()
  return Object.fromEntries(
    names
      .filter((name) => name === 'README' || existsSync(`${root}/plugins/${name}.ts`))
      .map((name) => [name === 'README' ? 'plugins' : name, readFileSync(`${root}/docs/plugins/${name}.md`, 'utf8')]),
  )
}
