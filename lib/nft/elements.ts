// This folder has the nftables rules of plumb (the .nft files) and the code that loads them and changes their elements.
// Begin with sets.nft and the other .nft files. Then read `applyElements` below.
import { heldSets, hold, isHeld, partsWith, releaseElements } from '../journal/elements.ts'
import { entries, isThere, partsOf, readPart } from '../journal/journal.ts'
import { following, holds } from '../journal/ports.ts'
import { NFT } from '../os/batch-tools.ts'
import type { Output, Run } from '../os/run.ts'
import { isOccupying, leave, occupy } from '../os/turns.ts'
import type { Batch } from '../state/batch.ts'
import { type Chain, chain } from '../state/kinds/chain.ts'
import { addition, type Element, element, removal } from '../state/kinds/element.ts'
import type { Resource } from '../state/resource.ts'
import { ExecError } from '../text/errors.ts'
import { amongOthers, isPair, largest, uncovered } from './masquerade.ts'
import {
  chainsOf,
  isMark,
  isOwnChain,
  isWhole,
  lostRules,
  markOf,
  SECTIONS,
  SETS,
  type Section,
  sectionOf,
  sectionsOf,
  sectionText,
} from './ruleset.ts'

type Send = (lines: readonly string[]) => Promise<Output>

/**
 * Removes and adds elements and chains of networks. Loads the rules that look up the elements when they are missing,
 * emptied or of another version. Throws ExecError.
 */
export async function applyElements({ ns, steps }: Batch, run: Run): Promise<void> {
  const send: Send = (lines) => run(NFT, inputOf(lines), ns)
  await removeElements(
    steps.filter(({ line }) => line.unless),
    run,
    send,
  )
  const making = steps.filter(({ line }) => !line.unless)
  if (making.length === 0) return
  const wanted = making.map(({ line }) => line.text)
  const resources = [...new Set(making.map(({ resource }) => resource))]
  const elements = resources.filter(isElement)
  const sections = sectionsOf(resources)
  hold(elements)
  // `nft flush table` removes the rules and leaves the sets. The marks are sets, so they stay, too.
  const isEmptied = !isWhole(run, sections) && lostRules(run, sections).length > 0
  let done = await send(addingTo(sections, wanted))
  if (done.stderr.includes('No such file or directory')) done = await load(sections, resources, run, send)
  if (done.stderr.includes('overlaps') || done.stderr.includes('File exists')) {
    // The key exists with another value. Its owner is gone, otherwise the port would not have been free.
    await remove(elements.filter(({ value }) => value !== undefined).map(removal), send)
    done = await send([...addingTo(sections, linesOf(resources)), ...(await amongOthers(elements, run))])
  }
  if (done.status === 0 && isEmptied && lostRules(run, sections).length > 0) done = await load(sections, [], run, send)
  if (done.status !== 0) throw refused(wanted, done)
}

/**
 * Adds the elements of all attachments on the node again, when the elements or their rules are missing. That happens
 * when somebody flushes the ruleset (`systemctl restart nftables` does), a table or a set. Existing elements and rules
 * stay as they are. Returns whether it loaded rules. `isThorough` also adds single missing elements. Throws ExecError.
 */
export async function restore(run: Run, isThorough = false): Promise<boolean> {
  const send: Send = (lines) => run(NFT, inputOf(lines))
  const sets = run.sets?.() ?? []
  // This check runs often on a node with many pods. It reads no entry of the journal unless something is lost.
  const isLoaded = (section: Section) => sets.includes(markOf(section))
  const isMarked = (section: Section) => sets.some((name) => name.startsWith(`rules_${section}_`))
  const needed = SECTIONS.every(isLoaded) ? [] : heldSets().flatMap((set) => sectionOf(set) ?? [])
  const used = SECTIONS.filter((section) => isMarked(section) || needed.includes(section))
  const isLost = !used.every(isLoaded) || (!isWhole(run, used) && lostRules(run, used).length > 0)
  if (used.length === 0 || (!isLost && !isThorough)) return false
  const { resources, done } = current()
  done()
  const sections = sectionsOf(resources)
  if (sections.length === 0) return false
  const answer = isLost
    ? await load(sections, [], run, send)
    : await send([...addingTo(sections, linesOf(resources)), ...largest(resources.filter(isElement).filter(isPair))])
  if (answer.status !== 0) throw refused(linesOf(resources), answer)
  return isLost
}

function inputOf(lines: readonly string[]): string {
  return `${lines.join('\n')}\n`
}

/** The lines of the transaction that adds elements and chains while the rules are loaded. */
export function addingTo(sections: readonly Section[], wanted: readonly string[]): string[] {
  return [...sections.map((section) => `add element inet plumb ${markOf(section)} { 1 }`), ...wanted]
}

/**
 * The chains and marks of plumb that exist when rules are loaded. The `own` chains are flushed and written again. The
 * `staleChains` and `staleMarks` are from another version and are deleted.
 */
interface Found {
  readonly own: readonly string[]
  readonly staleChains: readonly string[]
  readonly staleMarks: readonly string[]
}
const NOTHING: Found = { own: [], staleChains: [], staleMarks: [] }

/**
 * The lines of the transaction that loads sections of the rules and adds elements and chains. The whole text of a
 * section is one item of the list. The chains of networks and of an admin keep their rules.
 */
export function loading(
  sections: readonly Section[],
  resources: readonly Resource[],
  { own, staleChains, staleMarks }: Found = NOTHING,
): string[] {
  return [
    'add table inet plumb',
    ...[...own, ...staleChains].map((name) => `flush chain inet plumb ${name}`),
    ...staleChains.map((name) => `delete chain inet plumb ${name}`),
    ...staleMarks.map((name) => `delete set inet plumb ${name}`),
    SETS,
    ...sections.map(sectionText),
    ...sections.map((section) => `add set inet plumb ${markOf(section)} { type mark; }`),
    ...addingTo(sections, linesOf(resources)),
    ...largest(resources.filter(isElement).filter(isPair)),
  ]
}

// The program that removed the rules may have removed the elements, too. So a section is loaded together with the
// elements of all attachments in it.
async function load(needed: readonly Section[], wanted: readonly Resource[], run: Run, send: Send): Promise<Output> {
  const { resources, done } = current()
  try {
    const sets = run.sets?.() ?? []
    const used = sectionsOf(resources)
    const isOther = (name: string) => isMark(name) && !SECTIONS.some((section) => name === markOf(section))
    const isOld = (section: Section) => sets.some((name) => isOther(name) && name.startsWith(`rules_${section}_`))
    const isMissing = (section: Section) => used.includes(section) && !sets.includes(markOf(section))
    const sections = SECTIONS.filter((section) => needed.includes(section) || isOld(section) || isMissing(section))
    const chains = [...(run.uses?.().keys() ?? [])].filter(isOwnChain)
    const [own, all] = [chainsOf(sections), chainsOf(SECTIONS)]
    const found = {
      own: chains.filter((name) => own.includes(name)),
      staleChains: chains.filter((name) => !all.includes(name)),
      staleMarks: sets.filter(isOther),
    }
    const isAnew = sets.length === 0
    const restored = resources.filter((one) => {
      if (!isElement(one)) return true
      return isPair(one) ? isAnew : sectionsOf([one]).some((section) => sections.includes(section))
    })
    return await send(loading(sections, [...wanted, ...restored], found))
  } finally {
    done()
  }
}

// The elements and chains of the attachments whose pods exist. A part that another call works on is left out, because
// that call adds or removes its elements itself.
function current(): { readonly resources: readonly Resource[]; done(): void } {
  const all = entries()
    .flatMap(partsOf)
    .filter(([, { own }]) => own.some(isOfRules))
    .map(([part]) => part)
  const own = all.filter(isOccupying)
  const others = all.filter((part) => !own.includes(part) && occupy(part, 0))
  const resources = [...others, ...own].flatMap((part) => {
    const note = readPart(part)
    return note && isThere(note) ? following(note.own, holds).filter(isOfRules) : []
  })
  return {
    resources,
    done() {
      for (const part of others) leave(part)
    },
  }
}

function isOfRules(one: Resource): boolean {
  return isChain(one) || (isElement(one) && one.moment === undefined)
}

// Chains come first, because elements jump to them. Of several elements with the same key only the first is added.
// `largest` and `amongOthers` make the lines of pairs.
function linesOf(resources: readonly Resource[]): string[] {
  const chains = firstOf(resources.filter(isChain), ({ name }) => name)
  const elements = firstOf(resources.filter(isElement), ({ set, key }) => `${set} ${key}`)
  const lines = [
    ...chains.flatMap((one) => chain.put(one)),
    ...elements.filter((one) => !isPair(one)).flatMap((one) => element.put(one)),
  ]
  return lines.map(({ text }) => text)
}

function firstOf<T>(all: readonly T[], keyOf: (one: T) => string): T[] {
  const found = new Map<string, T>()
  for (const one of all) if (!found.has(keyOf(one))) found.set(keyOf(one), one)
  return [...found.values()]
}

// Removes an element only when no attachment needs it any more. When another attachment takes the element meanwhile,
// the element is added again.
async function removeElements(steps: Batch['steps'], run: Run, send: Send): Promise<void> {
  const all = steps.map(({ resource }) => resource).filter(isElement)
  const kept: readonly Resource[] = releaseElements(all)
  const going = steps.filter(({ resource }) => !kept.includes(resource))
  // Without the table there is nothing to remove. Then nft is not started, because it may not work on this node.
  if (going.length === 0 || run.hasTable?.() === false) return
  const gone = going.map(({ resource }) => resource).filter(isElement)
  await remove([...going.map(({ line }) => line.text), ...uncovered(gone)], send)
  const taken = gone.filter((one) => isHeld(one, partsWith(one, all)))
  if (taken.length > 0) await send(taken.map(addition))
}

const GONE = /^\/dev\/stdin:(\d+):.*(?:No such file or directory|datatype mismatch|Could not resolve)/gm

// Sends one transaction. It fails as a whole when an element is already gone, or when its set belongs to another
// program. Then the lines of these elements are left out, and the rest is tried again.
async function remove(lines: readonly string[], send: Send): Promise<void> {
  for (let rest = lines; rest.length > 0; ) {
    const done = await send(rest)
    if (done.status === 0) return
    const gone = new Set([...done.stderr.matchAll(GONE)].map(([, number]) => Number(number) - 1))
    if (gone.size === 0) throw refused(rest, done)
    rest = rest.filter((_, i) => !gone.has(i))
  }
}

function refused(lines: readonly string[], { status, stderr }: Output): ExecError {
  return new ExecError(NFT, lines.join('; '), stderr.split('\n', 1)[0] || `ended with status ${status}`)
}

function isElement(resource: Resource): resource is Element {
  return resource.kind === 'element'
}

function isChain(resource: Resource): resource is Chain {
  return resource.kind === 'chain'
}
