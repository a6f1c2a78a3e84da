// How a wanted text and the text of the agent are held against each other. `...` in a line stands for any text there.
// `...` alone stands for any lines, and with blanks before it for any lines of the same block, which have blanks, too.

/** Whether a text is as wanted. Otherwise the number of the first wanted line that the text does not have, from 0. */
export function firstMiss(wanted: string, text: string): number | undefined {
  const [want, have] = [linesOf(wanted), linesOf(text)]
  // The places in `have` up to which the wanted lines so far may have come.
  let places = new Set([0])
  for (const [i, line] of want.entries()) {
    const next = new Set<number>()
    for (const place of places) for (const one of after(line, have, place)) next.add(one)
    if (next.size === 0) return i
    places = next
  }
  return places.has(have.length) ? undefined : want.length
}

function* after(line: string, have: readonly string[], place: number): Generator<number> {
  const gap = /^( *)\.\.\.$/.exec(line)
  if (!gap) {
    const found = have[place]
    if (found !== undefined && isSame(line, found)) yield place + 1
    return
  }
  const indent = gap[1] as string
  for (let i = place; ; i++) {
    yield i
    if (i >= have.length || !(have[i] as string).startsWith(indent)) return
  }
}

/** Whether a line is as wanted. */
export function isSame(wanted: string, line: string): boolean {
  if (!wanted.includes('...')) return wanted === line
  const parts = wanted.split('...').map((one) => one.replace(/[\\^$.*+?()[\]{}|]/g, '\\$&'))
  return new RegExp(`^${parts.join('.*')}$`).test(line)
}

/** Whether a wanted text leaves something open. */
export function isPartial(wanted: string): boolean {
  return wanted.includes('...')
}

/** The lines of a text. Of no text, none. */
export function linesOf(text: string): string[] {
  return text === '' ? [] : text.replace(/\n$/, '').split('\n')
}

/** The difference of two texts: `-` is wanted and missing, `+` is there and not wanted. */
export function differenceOf(wanted: string, text: string): string {
  const [want, have] = [linesOf(wanted), linesOf(text)]
  // How many lines are the same from each pair of places on.
  const same = Array.from({ length: want.length + 1 }, () => new Uint32Array(have.length + 1))
  const at = (i: number, j: number) => same[i]?.[j] ?? 0
  for (let i = want.length - 1; i >= 0; i--)
    for (let j = have.length - 1; j >= 0; j--)
      (same[i] as Uint32Array)[j] = isSame(want[i] as string, have[j] as string)
        ? at(i + 1, j + 1) + 1
        : Math.max(at(i + 1, j), at(i, j + 1))
  const out: string[] = []
  for (let [i, j] = [0, 0]; i < want.length || j < have.length; ) {
    if (i < want.length && j < have.length && isSame(want[i] as string, have[j] as string)) {
      out.push(`    ${have[j++]}`)
      i++
    } else if (j >= have.length || (i < want.length && at(i + 1, j) >= at(i, j + 1))) out.push(`  - ${want[i++]}`)
    else out.push(`  + ${have[j++]}`)
  }
  return out.join('\n')
}
