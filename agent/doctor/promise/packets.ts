import { type Echoes, openEchoes } from '../../../lib/os/echo.ts'
import { inside } from '../../../lib/os/netns.ts'
import type { Path } from './paths.ts'

/** What became of the packets. */
export interface Measured {
  readonly arrived: readonly Path[]
  /** None of three was answered. */
  readonly lost: readonly Path[]
  /** Nothing could be sent, and why. */
  readonly unsent: readonly { readonly path: Path; readonly why: string }[]
}

/** An echo request without an answer is sent again: the first may have waited for a neighbour. */
const [TRIES, ROUND_MS, LOOK_MS] = [3, 350, 2]
/** So many are sent before answers are read: the buffer of a socket holds them. */
const BURST = 500
/** A Service has several endpoints. */
const CONNECTIONS = 4

/**
 * Sends a packet on each path, and waits for the answers. Takes as long as the slowest path. `connects` makes a
 * connection for a path with a port, and says whether that was answered. Never rejects.
 */
export async function measure(paths: readonly Path[], connects: (path: Path) => Promise<boolean>): Promise<Measured> {
  const [echoed, connected] = await Promise.all([
    echo(paths.filter(({ port }) => port === undefined)),
    connect(
      paths.filter(({ port }) => port !== undefined),
      connects,
    ),
  ])
  return {
    arrived: [...echoed.arrived, ...connected.arrived],
    lost: [...echoed.lost, ...connected.lost],
    unsent: [...echoed.unsent, ...connected.unsent],
  }
}

/** Sends an echo request on each path, and again to those that do not answer. Never rejects. */
export async function echo(paths: readonly Path[]): Promise<Measured> {
  const sockets = new Map<string, Echoes | { readonly why: string }>()
  const socketOf = ({ from }: Path) => {
    const key = `${from.ns} ${from.ip}`
    const had = sockets.get(key)
    if (had) return had
    const made = opened(from)
    sockets.set(key, made)
    return made
  }
  const unsent = paths.flatMap((path) => {
    const socket = socketOf(path)
    return 'why' in socket ? [{ path, why: socket.why }] : []
  })
  const none = new Set(unsent.map(({ path }) => path))
  const left = new Set(paths.keys().filter((i) => !none.has(paths[i] as Path)))
  const hear = () => {
    for (const socket of sockets.values())
      if (!('why' in socket)) for (let one = socket.hear(); one; one = socket.hear()) left.delete(one.target)
  }
  for (let serial = 1; serial <= TRIES && left.size > 0; serial++) {
    for (const [n, i] of [...left].entries()) {
      const path = paths[i] as Path
      const socket = socketOf(path)
      if (!('why' in socket)) socket.send(path.to.ip, i, serial, path.bytes)
      if (n % BURST === BURST - 1) hear()
    }
    for (const end = performance.now() + ROUND_MS; left.size > 0 && performance.now() < end; await Bun.sleep(LOOK_MS))
      hear()
  }
  for (const socket of sockets.values()) if (!('why' in socket)) socket.close()
  return {
    arrived: paths.filter((path, i) => !left.has(i) && !none.has(path)),
    lost: [...left].map((i) => paths[i] as Path),
    unsent,
  }
}

function opened({ ns, ip }: Path['from']): Echoes | { readonly why: string } {
  try {
    return inside(ns, () => openEchoes(ip))
  } catch (cause) {
    return { why: (cause as Error).message }
  }
}

async function connect(paths: readonly Path[], connects: (path: Path) => Promise<boolean>): Promise<Measured> {
  const all = await Promise.all(
    paths.map(async (path) => {
      const answers = await Promise.all(Array.from({ length: CONNECTIONS }, () => connects(path)))
      return { path, isLost: answers.includes(false) }
    }),
  )
  return {
    arrived: all.flatMap(({ path, isLost }) => (isLost ? [] : [path])),
    lost: all.flatMap(({ path, isLost }) => (isLost ? [path] : [])),
    unsent: [],
  }
}
