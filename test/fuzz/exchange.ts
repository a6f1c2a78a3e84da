import { connect } from 'node:net'
import { patient } from '../support/patience.ts'

/**
 * Writes to a socket and gives what is answered, until that ends; what is not `whole`, so that an answer cannot be
 * expected, is left at once. Rejects when nothing ends within 5 s.
 */
export async function exchanged(path: string, bytes: Buffer, whole = true): Promise<string> {
  const { promise, resolve, reject } = Promise.withResolvers<string>()
  const parts: Buffer[] = []
  const answered = () => resolve(Buffer.concat(parts).toString())
  const socket = connect(path, () => socket.write(bytes, () => whole || socket.destroy()))
  const timer = setTimeout(() => reject(new Error('nothing is answered')), patient(5000))
  socket.on('data', (part) => void parts.push(Buffer.from(part)))
  for (const event of ['close', 'end', 'error'] as const) socket.on(event, answered)
  try {
    return await promise
  } finally {
    clearTimeout(timer)
    socket.destroy()
  }
}
