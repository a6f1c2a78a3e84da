/** The first texts of a list in a sentence, and how many there are besides: `a, b and 3 more`. */
export function firstOf(all: readonly string[], most: number): string {
  return `${all.slice(0, most).join(', ')}${andMore(all.length - most)}`
}

/** What follows on the last text that a sentence names: ` and 3 more`, or nothing. */
export function andMore(count: number): string {
  return count > 0 ? ` and ${count} more` : ''
}
