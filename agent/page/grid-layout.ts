/** Where one cell of the grid of peers is, in pixels from the top left. */
export interface Cell {
  readonly x: number
  readonly y: number
}
/** The grid of peers, in groups one below the other. */
export interface GridLayout {
  readonly height: number
  /** The width and height of a cell without the gap. */
  readonly size: number
  /** In the order of the groups. */
  readonly cells: readonly Cell[]
  /** The names of the groups, with the place of their base line. */
  readonly heads: readonly { readonly name: string; readonly y: number }[]
  /** How many cells are in a line. */
  readonly across: number
}

const HEAD = 22
/** The sizes of cells, their gaps, and the most cells that have them on a page as wide as a screen. */
const SIZES = [
  [28, 2, 60],
  [22, 2, 200],
  [16, 2, 700],
  [12, 2, 1500],
] as const
/** Thousands of cells leave room for the first rows of the table. */
const SMALLEST = [7, 1] as const

/**
 * Places cells in lines. `groups` has the name and the number of cells of each group. A single group without a name has
 * no head. `width` is in pixels.
 */
export function gridLayout(
  groups: readonly { readonly name: string; readonly count: number }[],
  width: number,
): GridLayout {
  const all = groups.reduce((sum, { count }) => sum + count, 0)
  const [size, gap] = SIZES.find(([, , most]) => all <= most) ?? SMALLEST
  const step = size + gap
  const across = Math.max(Math.floor((width + gap) / step), 1)
  const cells: Cell[] = []
  const heads: { name: string; y: number }[] = []
  let top = 0
  for (const { name, count } of groups) {
    if (name !== '') {
      heads.push({ name, y: top + 15 })
      top += HEAD
    }
    for (let i = 0; i < count; i++) cells.push({ x: (i % across) * step, y: top + Math.floor(i / across) * step })
    top += Math.ceil(count / across) * step + (name === '' ? 0 : 6)
  }
  return { height: Math.max(top, step), size, cells, heads, across }
}

/** The index of the cell at a place in pixels. Undefined between cells. */
export function cellAt({ cells, size }: GridLayout, x: number, y: number): number | undefined {
  // The cells are in lines from the top to the bottom.
  let [low, high] = [0, cells.length]
  while (low < high) {
    const middle = (low + high) >> 1
    const cell = cells[middle] as Cell
    if (cell.y + size <= y || (cell.y <= y && cell.x + size <= x)) low = middle + 1
    else high = middle
  }
  const found = cells[low]
  return found && found.x <= x && found.y <= y && x < found.x + size && y < found.y + size ? low : undefined
}

/** The cell that an arrow key goes to. Undefined where there is none. */
export function neighbour({ cells }: GridLayout, from: number, key: string): number | undefined {
  const { x, y } = cells[from] ?? { x: 0, y: 0 }
  if (key === 'ArrowLeft') return from > 0 ? from - 1 : undefined
  if (key === 'ArrowRight') return from + 1 < cells.length ? from + 1 : undefined
  if (key === 'Home') return 0
  if (key === 'End') return cells.length - 1
  if (key !== 'ArrowUp' && key !== 'ArrowDown') return undefined
  const isOther = (cell: Cell) => (key === 'ArrowDown' ? cell.y > y : cell.y < y)
  const lines = cells.flatMap((cell, i) => (isOther(cell) ? [{ ...cell, i }] : []))
  const line = key === 'ArrowDown' ? lines[0]?.y : lines.at(-1)?.y
  const there = lines.filter((cell) => cell.y === line)
  return there.toSorted((a, b) => Math.abs(a.x - x) - Math.abs(b.x - x))[0]?.i
}
