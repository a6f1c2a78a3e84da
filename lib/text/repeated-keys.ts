// In a JSON text only keys are followed by a colon.
const TOKENS = /("(?:[^"\\]|\\.)*")(\s*:)?|[{}]/g

/** The keys that stand twice in one object of a JSON text, which JSON.parse does not tell: each as the path to it. The text has been parsed before. */
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
