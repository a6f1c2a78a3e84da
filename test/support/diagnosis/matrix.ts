// What the network promises, measured: packets of the test itself from each pod and node to all others.
import { openEchoes } from '../../../lib/os/echo.ts'
import { inside } from '../../../lib/os/netns.ts'
import type { Ip } from '../../../lib/text/ip.ts'
import type { NetnsPath } from '../../../lib/text/values.ts'
import type { Namespace } from '../harness.ts'
import { OUTSIDE, type Place, SERVICE, type World } from './world.ts'

/** A path on which packets must arrive, and their answers come back. */
export interface Path {
  readonly name: string
  /** The nodes at its ends, by number from 0. The outside has none. */
  readonly ends: readonly number[]
  readonly from: Namespace
  readonly source: Ip
  readonly to: Ip
  /** Bytes of an echo request; absent for connections to the Service. */
  readonly bytes?: number
}

const FAMILIES = ['v4', 'v6'] as const
const SIZES = ['small', 'full'] as const
/** VXLAN takes 50 bytes of the underlay's 1500, over IPv6 70: the MTU of pods. */
const FULL = 1430
/** A path is broken when none of so many packets is answered. */
const TRIES = 3
const [ROUND_MS, LOOK_MS, CONNECT_MS] = [500, 5, 1000]
/** A Service has three endpoints: so many connections miss one of them once in 3,000 times. */
const CONNECTIONS = 20

/** All paths of the world. Pure. */
export function pathsOf({ places }: World): Path[] {
  return FAMILIES.flatMap((family) =>
    places.flatMap((place, i) => {
      const [a, b] = place.pods
      const path = (what: string, from: Namespace, source: Ip, to: Ip, ...ends: number[]): Path[] =>
        SIZES.map((size) => ({
          name: `${what} ${family} ${size}`,
          ends: [...new Set([i, ...ends])],
          ...{ from, source, to },
          bytes: size === 'full' ? FULL : 0,
        }))
      const others = places.flatMap((other, j) => (other === place ? [] : [[other, j] as const]))
      return [
        ...path(`${a.name} → ${b.name}`, a.ns, a[family], b[family]),
        ...path(`${b.name} → ${a.name}`, b.ns, b[family], a[family]),
        ...path(`${a.name} → its node`, a.ns, a[family], place[family]),
        ...path(`node ${i + 1} → ${a.name}`, place.node.ns, sourceOf(place, family), a[family]),
        ...path(`${a.name} → outside`, a.ns, a[family], OUTSIDE[family]),
        ...others.flatMap(([other, j]) => [
          ...path(`${a.name} → ${other.pods[0].name}`, a.ns, a[family], other.pods[0][family], j),
          ...path(`${a.name} → ${other.pods[1].name}`, a.ns, a[family], other.pods[1][family], j),
          ...path(`${a.name} → node ${j + 1}`, a.ns, a[family], other[family], j),
          ...path(
            `node ${i + 1} → ${other.pods[0].name}`,
            place.node.ns,
            tunnelOf(place, family),
            other.pods[0][family],
            j,
          ),
        ]),
        ...[[a.name, a.ns, a[family]] as const, [`node ${i + 1}`, place.node.ns, place[family]] as const].map(
          ([name, from, source]): Path => ({
            name: `${name} → Service ${family}`,
            ends: [0, 1, 2],
            ...{ from, source },
            to: SERVICE[family],
          }),
        ),
      ]
    }),
  )
}

// The address that a node has towards its own pods: their gateway.
function sourceOf({ subnets }: Place, family: 'v4' | 'v6'): Ip {
  return subnets[family].replace(/(0|::)\/\d+$/, family === 'v4' ? '1' : '::1') as Ip
}

// The address of its tunnel.
function tunnelOf({ subnets }: Place, family: 'v4' | 'v6'): Ip {
  return subnets[family].replace(/\/\d+$/, '') as Ip
}

/** The paths on which no packet is answered. Takes half a second when all are, and two when one is not. */
export async function brokenOf(paths: readonly Path[]): Promise<Path[]> {
  const echoes = paths.filter(({ bytes }) => bytes !== undefined)
  const connections = paths.filter(({ bytes }) => bytes === undefined)
  const [silent, refused] = await Promise.all([unanswered(echoes), unconnected(connections)])
  return [...silent, ...refused]
}

async function unanswered(paths: readonly Path[]): Promise<Path[]> {
  const left = new Set(paths.keys())
  const sockets = new Map<string, ReturnType<typeof openEchoes>>()
  try {
    for (const [i, { from, source }] of paths.entries()) {
      const key = `${from.path} ${source}`
      // A namespace whose address is gone sends nothing.
      if (!sockets.has(key))
        try {
          sockets.set(
            key,
            inside(from.path as NetnsPath, () => openEchoes(source)),
          )
        } catch {
          left.add(i)
        }
    }
    for (let serial = 1; serial <= TRIES && left.size > 0; serial++) {
      for (const i of left) {
        const { from, source, to, bytes } = paths[i] as Path
        sockets.get(`${from.path} ${source}`)?.send(to, i, serial, bytes)
      }
      for (const end = performance.now() + ROUND_MS; left.size > 0 && performance.now() < end; await Bun.sleep(LOOK_MS))
        for (const one of sockets.values())
          for (let heard = one.hear(); heard; heard = one.hear()) left.delete(heard.target)
    }
  } finally {
    for (const one of sockets.values()) one.close()
  }
  return [...left].map((i) => paths[i] as Path)
}

async function unconnected(paths: readonly Path[]): Promise<Path[]> {
  const found = await Promise.all(
    paths.map(async (path) => {
      const all = await Promise.all(Array.from({ length: CONNECTIONS }, () => connects(path)))
      return all.every(Boolean) ? [] : [path]
    }),
  )
  return found.flat()
}

function connects({ from, to }: Path): Promise<boolean> {
  return new Promise((resolve) => {
    const timer = setTimeout(() => resolve(false), CONNECT_MS)
    const done = (answer: boolean, socket?: { terminate(): void }) => {
      clearTimeout(timer)
      socket?.terminate()
      resolve(answer)
    }
    inside(from.path as NetnsPath, () =>
      Bun.connect({
        hostname: to,
        port: SERVICE.port,
        socket: {
          open: (socket) => done(true, socket),
          data: () => undefined,
          error: () => done(false),
          connectError: () => done(false),
        },
      }),
    ).catch(() => done(false))
  })
}
