import type { Now, Wiring } from '../../lib/cni/plugin.ts'
import type { Result } from '../../lib/cni/result.ts'
import type { Addr } from '../../lib/state/kinds/addr.ts'
import { handler } from '../../lib/state/kinds/index.ts'
import type { Link } from '../../lib/state/kinds/link.ts'
import type { Plan, Resource } from '../../lib/state/resource.ts'
import { title } from '../../lib/state/resource.ts'
import { type Cidr, format, split } from '../../lib/text/ip.ts'
import type { Mac } from '../../lib/text/values.ts'
import type { ExplainedRun } from './explanation.ts'
import { runsOf } from './runs.ts'

/**
 * Explains what `settle` would still do, and its result, for links that ADD makes now. A run that happens only for
 * links that were there before says so in `when`.
 */
export function settling(wiring: Wiring): {
  readonly result: Result
  readonly runs: readonly ExplainedRun[]
  readonly notes: readonly string[]
} {
  const { settle, later = [] } = wiring
  if (!settle) return { result: wiring.result, runs: [], notes: [] }
  const links = wiring.shared.filter((one): one is Link => one.kind === 'link')
  const judged = links.filter((one) => one.type === 'bridge')
  const addresses = later.filter((one) => one.kind === 'addr')
  const settled = (isUp: boolean, held: readonly Addr[]) => settle(nowOf(links, isUp, held))
  const [made, down, kept] = [settled(true, []), settled(false, []), settled(true, addresses)]
  const key = (one: Resource) => handler(one.kind).key(one)
  const among = ({ plan }: typeof made, one: Resource) => plan?.put.some((other) => key(other) === key(one)) ?? false
  const condition = (one: Resource) => {
    if (!among(made, one)) return `only when ${title(one)} was there before and is not as asked`
    return among(kept, one) ? undefined : 'only when it is not there yet'
  }
  const macs = judged.map(
    (link) =>
      `in the result, mac and mtu of ${link.name} are those of a new one: one that is there already keeps its own`,
  )
  return {
    result: made.result,
    runs: down.plan ? runsOf(down.plan, condition) : [],
    notes: [...macs, ...inTheWay(addresses, (held) => settled(true, held).plan)],
  }
}

// Explains what happens to addresses that the wiring does not want. Asks `settle` about one sample address beside each
// wanted address.
function inTheWay(addresses: readonly Addr[], plan: (held: readonly Addr[]) => Plan | undefined): string[] {
  const others = addresses.map((one): Addr => {
    const { family, bits, length } = split(one.cidr)
    return { ...one, cidr: `${format({ family, bits: bits ^ 1n })}/${length}` as Cidr }
  })
  try {
    const gone = (plan(others)?.drop ?? []).filter((one) => one.kind === 'addr')
    const devices = [...new Set(gone.map(({ dev }) => dev))]
    return devices.map(
      (dev) => `an address of ${dev} that is in the way is deleted first: addr delete ADDRESS dev ${dev}`,
    )
  } catch (cause) {
    return [`where ${others[0]?.dev} has another address ADD is refused: ${(cause as Error).message}`]
  }
}

// The facts that the kernel would report about these links.
function nowOf(links: readonly Link[], isUp: boolean, held: readonly Addr[]): Now {
  return {
    seen(name) {
      const index = links.findIndex((one) => one.name === name)
      const { type: kind, mac = '' as Mac, mtu = 1500, promisc = false } = links[index] ?? {}
      return kind && { index, kind, mac, mtu, promisc, isUp, alias: '', isEthernet: true, locked: true }
    },
    held(index, family) {
      const own = held.filter(({ dev }) => dev === links[index]?.name)
      const asked = own.filter(({ cidr }) => family === undefined || split(cidr).family === family)
      return asked.map(({ cidr }) => ({ cidr, scope: 0 }))
    },
  }
}
