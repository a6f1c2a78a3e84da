import { chainUses, isInForce } from '../../lib/os/nftables.ts'
import type { Run } from '../../lib/os/run.ts'
import type { Stepped } from '../kernel/elements.ts'
import type { PolicyState } from './state.ts'
import { fixed, NAME, SHAPES, TABLE, type TableOptions } from './table.ts'

/** The lines of all items and elements of a state, for a whole table. */
export function tableText({ elements, items }: PolicyState): string[] {
  const lines = items.anew()
  for (const set of elements.names()) {
    const all = [...elements.wanted(set)].map(([key, value]) => (value === '' ? key : `${key} : ${value}`))
    if (all.length > 0) lines.push(`add element ${NAME} ${set} { ${all.join(', ')} }`)
  }
  return lines
}

/** Makes the whole table in one transaction, so that no packet meets half of it. Throws ExecError when nft refuses. */
export async function load({ elements, items }: PolicyState, options: TableOptions, run: Run): Promise<Stepped> {
  elements.forget()
  const stepped = await elements.step(run, { before: [...fixed(options), ...items.anew()] })
  items.settleAll()
  return stepped
}

/**
 * Brings the changes since the last transaction into the kernel, in one transaction. Throws ExecError when nft refuses.
 */
export async function update({ elements, items }: PolicyState, run: Run): Promise<Stepped> {
  const stepped = await elements.step(run, items.changes())
  items.settle()
  return stepped
}

/**
 * Why the chains in the kernel are not those of the last transaction. Undefined when they are. Compares how often the
 * kernel says that each chain is in use: by its rules, and by jumps from rules and elements.
 */
export function foreign(state: PolicyState, options: TableOptions): string | undefined {
  if (!isInForce('inet', TABLE)) return `nft table ${TABLE}`
  const [wanted, found] = [usesOf(state, options), chainUses('inet', TABLE)]
  for (const name of new Set([...wanted.keys(), ...found.keys()]))
    if ((wanted.get(name) ?? -1) !== (found.get(name) ?? -1)) return `nft chain ${TABLE} ${name}`
  return undefined
}

const JUMP = /\b(?:jump|goto) (\w+)/

function usesOf({ elements, items }: PolicyState, options: TableOptions): ReadonlyMap<string, number> {
  const uses = new Map<string, number>()
  const add = (name: string, count: number) => uses.set(name, (uses.get(name) ?? 0) + count)
  const rule = (chain: string, line: string) => {
    add(chain, 1)
    const target = JUMP.exec(line)?.[1]
    if (target !== undefined) add(target, 1)
  }
  let chain = ''
  for (const line of fixed(options)) {
    const name = /^ {2}chain (\w+) \{$/.exec(line)?.[1]
    if (name !== undefined) [chain] = [name, add(name, 0)]
    else if (chain !== '' && line.startsWith('    ') && !line.startsWith('    type ')) rule(chain, line)
  }
  for (const { name, kind, make } of items.all()) {
    if (kind !== 'chain') continue
    add(name, 0)
    for (const line of make.slice(1)) rule(name, line)
  }
  for (const [map, { value }] of Object.entries(SHAPES)) {
    if (value !== 'verdict') continue
    for (const verdict of elements.wanted(map).values()) {
      const target = JUMP.exec(verdict)?.[1]
      if (target !== undefined) add(target, 1)
    }
  }
  return uses
}
