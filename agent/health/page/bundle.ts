import { readFileSync } from 'node:fs'

/** Parts of the style sheet, in the order in which they win. */
const STYLES = ['base', 'cards', 'picture', 'narrow']

/** Makes the page's files, as texts. A macro: Bun runs it while it builds the executable or loads a test, and puts in what it returns; the page's sources are not looked for at run time. Throws what `bun build` said. */
export function bundle(): { html: string; js: string; css: string; icon: string } {
  const text = (name: string) => readFileSync(`${import.meta.dir}/${name}`, 'utf8')
  return { html: text('index.html'), js: script(`${import.meta.dir}/main.tsx`), css: STYLES.map((name) => text(`${name}.css`)).join(''), icon: text('icon.svg') }
}

// Another process: Bun.build inside of a build waits for itself.
function script(entry: string): string {
  const made = Bun.spawnSync([process.execPath, 'build', '--target=browser', '--production', entry])
  if (!made.success) throw new Error(`Cannot bundle ${entry}: ${made.stderr}`)
  return made.stdout.toString()
}
