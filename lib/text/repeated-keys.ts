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
