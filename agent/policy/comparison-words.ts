import type { Comparison } from './comparison.ts'

/** What policies would change in sentences without a full stop, for a terminal and for the page. */
export function comparisonWords({
  drafts,
  namespaces,
  isolation,
}: Pick<Comparison, 'drafts' | 'namespaces' | 'isolation'>): string[] {
  const isSame = namespaces.length + isolation.length === 0
  return [
    ...drafts.map(({ name, isKnown }) => `${name} ${isKnown ? 'stands instead of the one in the cluster' : 'is new'}`),
    ...(isSame ? ['Nothing changes between the pods of this node and others'] : []),
    ...isolation.map(({ pod, side, isIsolated }) =>
      isIsolated
        ? `${pod} is isolated for ${side} then: what no policy allows is refused, also with addresses outside`
        : `${pod} is not isolated for ${side} any more`,
    ),
    ...namespaces.map(({ from, to, opened, closed }) => {
      const parts = [...partOf(opened, 'more'), ...partOf(closed, 'fewer')]
      return `From ${from} to ${to}: ${parts.join(', ')}`
    }),
  ]
}

function partOf(count: number, word: string): string[] {
  return count === 0 ? [] : [`${count} ${count === 1 ? 'pair of pods reaches' : 'pairs of pods reach'} ${word} ports`]
}
