import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { Ajv } from 'ajv'

/** The object keeps to a schema of docs/schemas, and has no other keys. */
export function conforms(name: string, value: unknown): void {
  const schema = JSON.parse(readFileSync(join(import.meta.dir, `../../docs/schemas/${name}.json`), 'utf8'))
  const check = new Ajv({ allErrors: true, allowUnionTypes: true }).compile(closed(schema) as object)
  assert.ok(check(value), JSON.stringify(check.errors, null, 2))
}

// The published schemas allow keys of later versions.
function closed(schema: unknown): unknown {
  if (Array.isArray(schema)) return schema.map(closed)
  if (typeof schema !== 'object' || schema === null) return schema
  const made = Object.fromEntries(Object.entries(schema).map(([key, value]) => [key, closed(value)]))
  return 'properties' in made && !('additionalProperties' in made) ? { ...made, additionalProperties: false } : made
}
