/** The lines of a stream of text. */
export async function* linesOf(stream: ReadableStream<Uint8Array>): AsyncGenerator<string> {
  const decoder = new TextDecoder()
  let rest = ''
  for await (const piece of stream) {
    const parts = (rest + decoder.decode(piece, { stream: true })).split('\n')
    rest = parts.pop() ?? ''
    yield* parts
  }
}
