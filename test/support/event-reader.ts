// A reader of the agent's stream of changes.
import { request } from 'node:http'
import { constants, createGunzip } from 'node:zlib'
import { known, type Patch, patched, type ReaderState, type Whole } from '../../agent/state/messages.ts'

/** A reader of `/events`. */
export interface Reader {
  readonly state: ReaderState | undefined
  /** The names of the messages, with those of beats, and the ids of the messages. */
  readonly names: readonly string[]
  readonly ids: readonly string[]
  /** How many bytes have come over the wire. */
  readonly bytes: number
  readonly headers: Record<string, unknown>
  /** The server has ended it, and not within an event. */
  readonly hasEnded: boolean
  pause(): void
  resume(): void
  close(): void
}

/** Listens to the agent at a port of 127.0.0.1. */
export function readEvents(port: number, headers: Record<string, string> = {}): Promise<Reader> {
  return new Promise((resolve, reject) => {
    const asked = request({ host: '127.0.0.1', port, path: '/events', headers }, (answer) => {
      let [rest, bytes, hasEnded] = ['', 0, false]
      let state: ReaderState | undefined
      const [names, ids]: [string[], string[]] = [[], []]
      answer.on('data', (chunk: Buffer) => {
        bytes += chunk.length
      })
      answer.on('error', () => {})
      const isGzip = answer.headers['content-encoding'] === 'gzip'
      const body = isGzip ? answer.pipe(createGunzip({ finishFlush: constants.Z_SYNC_FLUSH })) : answer
      body.on('error', () => {})
      body.setEncoding('utf8')
      body.on('data', (more: string) => {
        const parts = (rest + more).split('\n\n')
        rest = parts.pop() ?? ''
        for (const part of parts) {
          if (/^event: beat$/m.test(part)) names.push('beat')
          const [, name, id = '', data = ''] = /^event: (whole|patch)\nid: (.*)\ndata: (.*)$/m.exec(part) ?? []
          if (name === undefined) continue
          names.push(name)
          ids.push(id)
          if (name === 'whole') state = known(JSON.parse(data) as Whole)
          else if (state) state = patched(state, JSON.parse(data) as Patch)
        }
      })
      body.on('end', () => {
        hasEnded = rest === ''
      })
      resolve({
        get state() {
          return state
        },
        names,
        ids,
        get bytes() {
          return bytes
        },
        get hasEnded() {
          return hasEnded
        },
        headers: answer.headers,
        pause: () => answer.pause(),
        resume: () => answer.resume(),
        close: () => asked.destroy(),
      })
    })
    asked.on('error', reject)
    asked.end()
  })
}
