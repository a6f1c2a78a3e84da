import { readFileSync } from 'node:fs'

/** The parts of the style sheet. Later parts override earlier parts. */
const STYLES = ['base', 'parts', 'peers', 'narrow']
/** The first file of the script of each page. */
const ENTRIES = { node: 'main.tsx', fleet: '../../fleet/page/main.tsx' } as const

/**
 * Makes a page's files as texts. This function is a macro. Bun runs it when it builds the executable or loads a test.
 * Bun inserts the returned value, so the page's sources are not needed later. Throws Error with `bun build`'s output.
 */
export function bundle(page: keyof typeof ENTRIES): { html: string; js: string; css: string; icon: string } {
  const text = (name: string) => readFileSync(`${import.meta.dir}/${name}`, 'utf8')
  return {
    html: text('index.html'),
    js: script(`${import.meta.dir}/${ENTRIES[page]}`),
    css: STYLES.map((name) => text(`${name}.css`)).join(''),
    icon: text('icon.svg'),
  }
}

// Runs a subprocess, because Bun.build inside a build waits for itself forever.
function script(entry: string): string {
  const made = Bun.spawnSync([process.execPath, 'build', '--target=browser', '--production', entry])
  if (!made.success) throw new Error(`Cannot bundle ${entry}: ${made.stderr}`)
  return made.stdout.toString()
}
