/**
 * JSON as a fuzzer wants it: keys in order and as often as they come, and text that JSON.stringify would never write.
 */
export type Node = string | number | boolean | null | Node[] | Pairs | Raw
export interface Pairs {
  pairs: [string, Node][]
}
/** Stands in the text as it is. */
export interface Raw {
  readonly raw: string
}
/** Somewhere in a tree: reads and replaces what is there. */
export interface Place {
  /** `ipam.ranges[0]` */
  readonly path: string
  readonly of: Pairs | Node[]
  readonly at: number
  get(): Node
  set(node: Node): void
}

/** A parsed value as a tree. */
export function tree(value: unknown): Node {
  if (Array.isArray(value)) return value.map(tree)
  if (typeof value === 'object' && value !== null)
    return { pairs: Object.entries(value).map(([key, one]) => [key, tree(one)]) }
  return value as Node
}

/** A tree as text. */
export function text(node: Node): string {
  if (Array.isArray(node)) return `[${node.map(text).join(',')}]`
  if (typeof node !== 'object' || node === null) return JSON.stringify(node)
  if ('raw' in node) return node.raw
  return `{${node.pairs.map(([key, value]) => `${JSON.stringify(key)}:${text(value)}`).join(',')}}`
}

/** Every place of a tree but its root, from the outside in. */
export function places(node: Node, path = ''): Place[] {
  if (typeof node !== 'object' || node === null || 'raw' in node) return []
  if (Array.isArray(node))
    return node.flatMap((one, at) => [item(node, at, `${path}[${at}]`), ...places(one, `${path}[${at}]`)])
  return node.pairs.flatMap(([key, value], at) => {
    const inner = path ? `${path}.${key}` : key
    return [member(node, at, inner), ...places(value, inner)]
  })
}

function item(of: Node[], at: number, path: string): Place {
  function set(to: Node): void {
    of[at] = to
  }
  return { path, of, at, get: () => of[at] as Node, set }
}

function member(of: Pairs, at: number, path: string): Place {
  const pair = of.pairs[at] as [string, Node]
  function set(to: Node): void {
    pair[1] = to
  }
  return { path, of, at, get: () => pair[1], set }
}
