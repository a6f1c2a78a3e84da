import { readFileSync } from 'node:fs'
import { dirname, join, normalize } from 'node:path'
import { Glob } from 'bun'

const ROOT = join(import.meta.dir, '..')

/**
 * Draws the rooms of the sources and who calls whom, as a Mermaid flowchart. An arrow that follows from others is left
 * out, and so are imports of types alone.
 */
export function roomsDrawn(): string {
  const arrows = reduced(calls())
  const groups = Map.groupBy(
    [...new Set([...arrows.keys(), ...[...arrows.values()].flatMap((all) => [...all])])].sort(),
    (room) => room.split('/', 1)[0] as string,
  )
  const id = (room: string) => room.replaceAll('/', '_')
  return [
    '```mermaid',
    'flowchart TD',
    ...[...groups].flatMap(([top, rooms]) => [
      `  subgraph ${top}_[${top}]`,
      ...rooms.map((room) => `    ${id(room)}["${room === top ? 'files' : room.slice(top.length + 1)}"]`),
      '  end',
    ]),
    ...[...arrows].sort().flatMap(([from, all]) => [...all].sort().map((to) => `  ${id(from)} --> ${id(to)}`)),
    '```',
  ].join('\n')
}

// Its first two folders, or the first when it stands there.
function roomOf(file: string): string {
  return dirname(file).split('/').slice(0, 2).join('/')
}

// Which rooms each room calls.
function calls(): Map<string, Set<string>> {
  const found = new Map<string, Set<string>>()
  for (const file of new Glob('{lib,plugins,agent,cli}/**/*.{ts,tsx}').scanSync({ cwd: ROOT })) {
    if (file.includes('/generated/')) continue
    const [room, text] = [roomOf(file), readFileSync(join(ROOT, file), 'utf8')]
    const all = found.get(room) ?? new Set()
    found.set(room, all)
    for (const [, from = ''] of text.matchAll(/^(?:import (?!type )|export )[^'"]*?from '(\.[^']+)'/gm)) {
      const other = roomOf(normalize(join(dirname(file), from)))
      if (other !== room && /^(lib|plugins|agent|cli)\b/.test(other)) all.add(other)
    }
  }
  return found
}

// Without the arrows that follow from others.
function reduced(all: ReadonlyMap<string, ReadonlySet<string>>): Map<string, Set<string>> {
  const reaches = (from: string, to: string, seen = new Set<string>()): boolean => {
    if (seen.has(from)) return false
    seen.add(from)
    return from === to || [...(all.get(from) ?? [])].some((next) => reaches(next, to, seen))
  }
  return new Map(
    [...all].map(([from, targets]) => [
      from,
      new Set(
        [...targets].filter((to) => ![...targets].some((other) => other !== to && reaches(other, to, new Set([from])))),
      ),
    ]),
  )
}
