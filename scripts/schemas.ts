// Makes docs/schemas: what commands print with --json, as JSON schemas. They come from the types of the code.
import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { createGenerator } from 'ts-json-schema-generator'

const ROOT = join(import.meta.dir, '..')
const DRAFT = 'http://json-schema.org/draft-07/schema#'
type Schema = Readonly<Record<string, unknown>>

/** A schema: its file, what is in it, and what should be. */
export interface SchemaFile {
  readonly file: string
  readonly is: string | undefined
  readonly want: string
}

/** The schemas of all answers. It reads all types of the code, which takes some seconds. */
export function schemas(): SchemaFile[] {
  const generator = createGenerator({
    path: join(ROOT, 'scripts/docs/answers.ts'),
    tsconfig: join(ROOT, 'tsconfig.json'),
    skipTypeCheck: true,
    expose: 'none',
    topRef: false,
    // An answer may get more keys in a later version.
    additionalProperties: true,
  })
  const { properties = {} } = generator.createSchema('Answers')
  return Object.entries(properties).map(([name, schema]) => {
    const file = `docs/schemas/${name}.json`
    const { $schema: _, ...rest } = schema as Schema
    return {
      file,
      is: read(file),
      want: `${JSON.stringify({ $schema: DRAFT, title: `plumb ${name}`, ...rest }, null, 2)}\n`,
    }
  })
}

function read(file: string): string | undefined {
  const path = join(ROOT, file)
  return existsSync(path) ? readFileSync(path, 'utf8') : undefined
}

if (import.meta.main)
  for (const { file, is, want } of schemas())
    if (is !== want) {
      writeFileSync(join(ROOT, file), want)
      process.stderr.write(`schemas: wrote ${file}\n`)
    }
