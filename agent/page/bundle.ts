import { readFileSync } from 'node:fs'

/** The parts of the style sheet. Later parts override earlier parts. */
const STYLES = ['base', 'parts', 'peers', 'narrow']
const ROOT = `${import.meta.dir}/../..`

/**
 * Makes a page's files as texts. `entry` is the first file of its script, from the root of the sources. This function is
 * a macro. Bun runs it when it builds the executable or loads a test. Bun inserts the returned value, so the page's
 * sources are not needed later. Throws Error with `bun build`'s output.
 */
export function bundle(entry: string): { html: string; js: string; css: string; icon: string } {
  const text = (name: string) => readFileSync(`${import.meta.dir}/${name}`, 'utf8')
  return {
    html: text('index.html'),
    js: script(`${ROOT}/${entry}`),
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
