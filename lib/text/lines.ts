/**
 * The lines of a stream of text, without those that are empty. A piece of the stream may end within a line or a
 * character. `longest` is a limit in characters. Throws Error when a line is longer.
 */
export async function* linesOf(
  stream: AsyncIterable<Uint8Array>,
  longest = Number.POSITIVE_INFINITY,
): AsyncGenerator<string, undefined> {
  const decoder = new TextDecoder()
  let rest = ''
  for await (const piece of stream) {
    const lines = `${rest}${decoder.decode(piece, { stream: true })}`.split('\n')
    rest = lines.pop() ?? ''
    if (rest.length > longest) throw new Error(`it sent a line of more than ${longest} characters`)
    for (const line of lines) if (line !== '') yield line
  }
  if (rest !== '') yield rest
  return undefined
}
