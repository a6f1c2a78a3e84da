// Makes docs/pictures: the pages of scripted agents in a real browser, in both themes. test/support/picture-scenes.ts
// says what they show. `--png DIR` writes them as PNG files into a folder instead.
import { mkdirSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { digestOf, eachPicture, FOLDER, SEEN, type Seen } from '../test/support/pictures.ts'
import { CHROMIUM, launch } from '../test/support/status-page.ts'
import { present } from './packages.ts'

const PORTS = [10_266, 10_267] as const

if (!present(CHROMIUM)) throw new Error(`Cannot make pictures without ${CHROMIUM}: npm run setup installs it`)
const { png } = parseArgs({ options: { png: { type: 'string' } } }).values
const [folder, format] = png === undefined ? ([FOLDER, 'webp'] as const) : ([png, 'png'] as const)
const seen: Record<string, Seen[string]> = {}
const browser = await launch()
try {
  if (png === undefined) rmSync(folder, { recursive: true, force: true })
  mkdirSync(folder, { recursive: true })
  await eachPicture(browser, PORTS, async ({ name, shown, image }) => {
    const bytes = await image(format)
    writeFileSync(join(folder, `${name}.${format}`), bytes)
    seen[name] = { sha256: digestOf(bytes), ...shown }
    process.stderr.write(`pictures: wrote ${name}.${format}, ${Math.round(bytes.length / 1000)} kB\n`)
  })
  if (png === undefined) writeFileSync(SEEN, `${JSON.stringify(seen)}\n`)
} finally {
  await browser.close()
}
