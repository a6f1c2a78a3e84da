import type { Facts } from './view.ts'

/** One fact that is not the same; undefined where a side has none. */
export interface Difference {
  readonly path: string
  readonly theirs: string | undefined
  readonly ours: string | undefined
}

/**
 * All facts in which two sides differ, by path. Of a link that only one side has, and of what hangs on it, nothing but
 * that it is there.
 */
export function differences(stage: string, theirs: Facts, ours: Facts): Difference[] {
  const lonely = [...new Set([...theirs.keys(), ...ours.keys()])].filter(
    (path) => path.endsWith('/there') && theirs.has(path) !== ours.has(path),
  )
  const all = [...new Set([...theirs.keys(), ...ours.keys()])].sort().flatMap((path) => {
    const [one, other] = [theirs.get(path), ours.get(path)]
    // Both refuse: the words are each one's own.
    if (one?.startsWith('refuses') && other?.startsWith('refuses'))
      return codeOf(one) === codeOf(other)
        ? []
        : [{ path: `${stage}/${path}/code`, theirs: codeOf(one), ours: codeOf(other) }]
    const isPart = lonely.some((there) => path !== there && path.startsWith(there.slice(0, -'there'.length)))
    return one === other || isPart ? [] : [{ path: `${stage}/${path}`, theirs: one, ours: other }]
  })
  const parting = all.find(isParting)
  return parting ? [parting] : all
}

/** Whether one side did what the other refused: nothing can be compared from there on. */
export function isParting({ path, theirs = '', ours = '' }: Difference): boolean {
  return path.startsWith('add ') && theirs.startsWith('refuses') !== ours.startsWith('refuses')
}

function codeOf(refusal: string): string {
  return /^refuses with (\d+)/.exec(refusal)?.[1] ?? refusal
}
