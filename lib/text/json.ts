/**
 * Whether a value is nested more than `most` levels deep. JSON.parse reads a hundred thousand brackets at once.
 * JSON.stringify and other recursive functions take seconds until the stack overflows.
 */
export function isDeep(value: unknown, most = 50): boolean {
  if (typeof value !== 'object' || value === null) return false
  return most === 0 || Object.values(value).some((inner) => isDeep(inner, most - 1))
}

/**
 * Whether a text opens more than `most` brackets that are open together, whether or not it is JSON. Does not recurse.
 */
export function isDeepText(text: string, most: number): boolean {
  // Most texts do not open so many.
  if (text.split('[').length + text.split('{').length <= most + 2) return false
  let [depth, isString] = [0, false]
  for (let at = 0; at < text.length && depth <= most; at++) {
    const char = text[at] as string
    if (char === '"') isString = !isString
    else if (isString && char === '\\') at++
    else if (!isString && (char === '[' || char === '{')) depth++
    else if (!isString && (char === ']' || char === '}')) depth--
  }
  return depth > most
}

// In a JSON text, a colon follows only keys.
const TOKENS = /("(?:[^"\\]|\\.)*")(\s*:)?|[{}]/g

/**
 * The keys that stand twice in one object of a JSON text, each as its path. JSON.parse does not report them. The text
 * must have been parsed before.
 */
export function repeatedKeys(text: string): string[][] {
  const found: string[][] = []
  const open: { readonly path: readonly string[]; readonly seen: Set<string> }[] = []
  let last = ''
  for (const [token, string, colon] of text.matchAll(TOKENS)) {
    const here = open.at(-1)
    if (token === '{') open.push({ path: here ? [...here.path, last] : [], seen: new Set() })
    else if (token === '}') open.pop()
    else if (here && string !== undefined && colon !== undefined) {
      last = JSON.parse(string)
      if (here.seen.has(last)) found.push([...here.path, last])
      here.seen.add(last)
    }
  }
  return found
}
