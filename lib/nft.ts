import type { Batch } from './apply.ts'
import { NFT } from './argv.ts'
import { ExecError } from './errors.ts'
import { hold, isHeld, letGo } from './held.ts'
import { addition, removal } from './kinds/element.ts'
import { amongOthers } from './masquerade.ts'
import type { Output, Run } from './plugin.ts'
import { isOwnChain, isWhole, lostRules } from './rules.ts'
import ruleset from './ruleset.nft' with { type: 'text' }
import type { Element, Resource } from './state.ts'

// A set named after the rules' own text is loaded with them: what another version loaded has none of that name, and is replaced.
const SET = `ruleset_${Bun.hash(ruleset).toString(16)}`
const MARK = `add element inet plumb ${SET} { 1 }`

type Send = (lines: readonly string[]) => Promise<Output>

/** Removes and adds elements, and chains of networks. The rules are loaded when they are missing, emptied, or another version's. Throws ExecError. */
export async function applyElements({ ns, steps }: Batch, run: Run): Promise<void> {
  const send: Send = (lines) => run(NFT, inputOf(lines), ns)
  await removeElements(
    steps.filter(({ line }) => line.unless),
    send,
  )
  const making = steps.filter(({ line }) => !line.unless)
  if (making.length === 0) return
  hold(making.map(({ resource }) => resource).filter(isElement))
  const wanted = making.map(({ line }) => line.text)
  // Asked while nft is at work. `nft flush table` takes the rules and leaves the sets, the mark among them.
  const isEmptied = !isWhole(run) && lostRules(run).length > 0
  let done = await send(addingTo(wanted))
  if (done.stderr.includes('No such file or directory')) done = await load(wanted, run, send)
  if (done.stderr.includes('overlaps') || done.stderr.includes('File exists')) {
    const elements = making.map(({ resource }) => resource).filter(isElement)
    // A key with another value: its owner is gone, or the port would not have been free.
    await remove(elements.filter(({ value }) => value !== undefined).map(removal), send)
    const chains = making.filter(({ resource }) => !isElement(resource)).map(({ line }) => line.text)
    done = await send([MARK, ...chains, ...elements.filter(({ set }) => !/^(masq|local)[46]$/.test(set)).map(addition), ...(await amongOthers(elements, run))])
  }
  if (done.status === 0 && isEmptied && lostRules(run).length > 0) done = await load([], run, send)
  if (done.status !== 0) throw refused(wanted, done)
}

/** What nft gets first of a batch that only adds, for whoever gives it that ahead of `applyElements`; that the elements are held is noted by then. */
export function firstInput({ steps }: Batch): string {
  hold(steps.map(({ resource }) => resource).filter(isElement))
  return inputOf(addingTo(steps.map(({ line }) => line.text)))
}

function inputOf(lines: readonly string[]): string {
  return `${lines.join('\n')}\n`
}

// The chains of networks with conditions, and an admin's, are no part of the rules, which empty the table: they are put back as they were.
async function load(wanted: readonly string[], run: Run, send: Send): Promise<Output> {
  const names = [...(run.rules?.().keys() ?? [])].filter((name) => !isOwnChain(name))
  const { stdout } = names.length > 0 ? await send(names.map((name) => `list chain inet plumb ${name}`)) : { stdout: '' }
  return send(loading(wanted, stdout))
}

/** The lines of the transaction that makes things in a table that has the rules. */
export function addingTo(wanted: readonly string[]): string[] {
  return [MARK, ...wanted]
}

/** The lines of the transaction that loads the rules first: lib/ruleset.nft as one line, and as another one the chains of networks, as nft printed them. */
export function loading(wanted: readonly string[], chains = ''): string[] {
  return [ruleset, `add set inet plumb ${SET} { type mark; }`, chains, MARK, ...wanted]
}

// Of elements that several attachments may have those that none has any more; whoever took one meanwhile gets it back.
async function removeElements(steps: Batch['steps'], send: Send): Promise<void> {
  const kept: readonly Resource[] = letGo(steps.map(({ resource }) => resource).filter(isElement))
  const going = steps.filter(({ resource }) => !kept.includes(resource))
  await remove(
    going.map(({ line }) => line.text),
    send,
  )
  const taken = going
    .map(({ resource }) => resource)
    .filter(isElement)
    .filter((one) => isHeld(one))
  if (taken.length > 0) await send(taken.map(addition))
}

// One transaction; an element that is gone already fails it whole, so it is left out and the rest tried again.
async function remove(lines: readonly string[], send: Send): Promise<void> {
  for (let rest = lines; rest.length > 0; ) {
    const done = await send(rest)
    if (done.status === 0) return
    const gone = new Set([...done.stderr.matchAll(/^\/dev\/stdin:(\d+):.*No such file or directory/gm)].map(([, number]) => Number(number) - 1))
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
