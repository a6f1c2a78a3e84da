import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Found } from './guest.ts'

/** The file of the budget. */
export const FILE = join(import.meta.dir, '../budget.json')
/** How much a figure may grow or fall, as a part of it. Equal builds differ by up to 0.5 %. */
export const MARGIN = 0.02
/** The command that writes the budget again. */
export const WRITE = 'npm run bench -- --only budget --write-budget'

/** Instructions of plumb, by path and by call, and the versions that they belong to. */
export interface Budget {
  readonly versions: Readonly<Record<string, string>>
  /** By path and what is measured: a MiB of a stream, a request, a connection with a request, a first packet. */
  readonly paths: Readonly<Record<string, Readonly<Record<string, number>>>>
  readonly calls: Readonly<Record<string, number>>
}
/** A figure that differs from its budget by more than the margin, as a sentence. */
export interface Verdicts {
  /** What costs more, and what the budget lacks. */
  readonly grew: readonly string[]
  /** What costs less. */
  readonly fell: readonly string[]
}

/** The budget of the repository. Throws Error when there is none. */
export function readBudget(): Budget {
  if (!existsSync(FILE)) throw new Error(`Cannot find the budget ${FILE}: ${WRITE} makes it`)
  return JSON.parse(readFileSync(FILE, 'utf8'))
}

/** Writes it, sorted, so that a change of one figure is a change of one line. */
export function writeBudget(budget: Budget): void {
  writeFileSync(FILE, `${JSON.stringify(sorted(budget), null, 2)}\n`)
}

/** What one contender took, as a budget. */
export function budgetOf(found: readonly Found[], contender: string): Budget {
  const paths: Record<string, Record<string, number>> = {}
  const calls: Record<string, number> = {}
  let versions: Readonly<Record<string, string>> = {}
  for (const one of found) {
    if (one.what === 'versions') versions = one.versions
    if (one.what === 'path' && one.contender === contender)
      paths[one.path] = { ...paths[one.path], [one.kind]: one.instructions }
    if (one.what === 'call' && one.contender === contender) calls[one.call] = one.instructions
  }
  return { versions, paths, calls }
}

/** The part of a budget that is of one path, or of the calls when no path is given. */
export function partOf({ versions, paths, calls }: Budget, path?: string): Budget {
  if (path === undefined) return { versions, paths: {}, calls }
  return { versions, paths: { [path]: paths[path] ?? {} }, calls: {} }
}

/** Compares what was measured with the budget. */
export function compare(budget: Budget, measured: Budget): Verdicts {
  const [allowed, all] = [flat(budget), flat(measured)]
  const [grew, fell]: [string[], string[]] = [[], []]
  for (const [name, figure] of all) {
    const limit = allowed.get(name)
    const change = limit === undefined ? Number.NaN : figure / limit - 1
    const text = `${name}: ${figure.toLocaleString('en')} instructions, the budget has ${limit?.toLocaleString('en') ?? 'none'}`
    const by = `${text}, ${Math.abs(change * 100).toFixed(1)} %`
    if (limit === undefined) grew.push(text)
    else if (change > MARGIN) grew.push(`${by} more`)
    else if (change < -MARGIN) fell.push(`${by} less`)
  }
  for (const name of allowed.keys()) if (!all.has(name)) grew.push(`${name}: it was not measured`)
  return { grew, fell }
}

function flat({ paths, calls }: Budget): Map<string, number> {
  return new Map([
    ...Object.entries(paths).flatMap(([path, kinds]) =>
      Object.entries(kinds).map(([kind, figure]): [string, number] => [`${path}, ${kind}`, figure]),
    ),
    ...Object.entries(calls),
  ])
}

function sorted(value: unknown): unknown {
  if (typeof value !== 'object' || value === null) return value
  return Object.fromEntries(
    Object.entries(value)
      .sort(([a], [b]) => (a < b ? -1 : 1))
      .map(([key, one]) => [key, sorted(one)]),
  )
}
