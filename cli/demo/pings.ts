import type { Pod, PodHome } from './acts.ts'
import { exec, type Way } from './exec.ts'
import { type Running, startLogged, until } from './running.ts'

/** Continuous echo requests between pods, 100 per second for each pair and family. */
export interface Flows {
  readonly pairs: number
  /**
   * Waits until every flow is answered again, and ends the flows. Returns their losses since `since`, in milliseconds
   * since 1970. Throws Error that names the flows without an answer.
   */
  healed(since: number): Promise<Outage>
}
/** The losses of all flows. */
export interface Outage {
  /** The number of flows that lost a packet. */
  readonly cut: number
  /** Milliseconds from `since` to the first reply after the last lost packet, over all pairs. */
  readonly ms: number
}
interface Reply {
  readonly at: number
  readonly seq: number
}
interface Flow extends Running {
  readonly name: string
}

const LIMIT_MS = 5000

/**
 * Sends one echo request to every address that `targets` names for a pair of pods, all at once. `size` is the size of
 * the whole packet in bytes. Throws Error that names the addresses without an answer within two seconds.
 */
export async function pingAll(
  pods: readonly Pod[],
  targets: (from: Pod, to: Pod) => readonly string[],
  size?: number,
): Promise<string> {
  const pairs = pods.flatMap((from) => pods.flatMap((to) => targets(from, to).map((address) => ({ from, address }))))
  const tried = await Promise.all(
    pairs.map(async (pair) => ({
      ...pair,
      ...(await exec(
        ['ping', '-n', '-c', '1', '-w', '2', ...sized(pair.address, size), pair.address],
        wayOf(pair.from),
      )),
    })),
  )
  const silent = tried.filter(({ status }) => status !== 0)
  if (silent.length > 0)
    throw new Error(
      silent
        .map(({ from, address, stdout, stderr }) =>
          `no answer from ${address} to ${from.name} ${said(stdout)}${stderr}`.trimEnd(),
        )
        .join('\n'),
    )
  const families = new Set(pairs.map(({ address }) => (address.includes(':') ? 'IPv6' : 'IPv4')))
  return `${tried.length} of ${pairs.length} answered, over ${[...families].join(' and ')}`
}

/**
 * Starts continuous echo requests between all pods, and waits until each flow has an answer. The packets have `size`
 * bytes, and no router may fragment them. Throws Error.
 */
export async function keepPinging(pods: readonly Pod[], size: number): Promise<Flows> {
  const flows = pods.flatMap((from) =>
    pods.flatMap((to) => (from === to ? [] : to.addresses.map((address) => flow(from, address, size)))),
  )
  await answered(flows, 0)
  return {
    pairs: flows.length,
    async healed(since) {
      // A reply that arrives after this moment shows that the path works again.
      await answered(flows, Date.now())
      for (const { child } of flows) child.kill('SIGINT')
      await Promise.all(flows.map(({ child }) => child.exited))
      return outage(flows, since)
    },
  }
}

function flow(from: Pod, address: string, size: number): Flow {
  return {
    name: `${address} to ${from.name}`,
    ...startLogged(['ping', '-n', '-D', '-i', '0.01', ...sized(address, size), address], wayOf(from)),
  }
}

async function answered(flows: readonly Flow[], after: number): Promise<void> {
  const silent = () => flows.filter(({ said }) => !((replies(said()).at(-1)?.at ?? 0) > after))
  await until(
    async () => silent().length === 0 || undefined,
    LIMIT_MS,
    () =>
      silent()
        .map(({ name }) => `no answer from ${name}`)
        .join('\n'),
  )
}

function outage(flows: readonly Flow[], since: number): Outage {
  const ends = flows.flatMap(({ said }) => lastGap(replies(said()), since) ?? [])
  return { cut: ends.length, ms: Math.round(Math.max(since, ...ends) - since) }
}

// Returns the time of the first reply after the last lost packet.
function lastGap(got: readonly Reply[], since: number): number | undefined {
  return got.findLast(({ at, seq }, i) => at > since && seq > (got[i - 1]?.seq ?? seq) + 1)?.at
}

// Parses lines such as `[1700000000.123456] 1458 bytes from 10.244.2.2: icmp_seq=7 ttl=62 time=0.08 ms`, in order.
function replies(text: string): Reply[] {
  return [...text.matchAll(/^\[([\d.]+)\] \d+ bytes from .*icmp_seq=(\d+) /gm)].map(([, at, seq]) => ({
    at: Number(at) * 1000,
    seq: Number(seq),
  }))
}

// Options of ping for a packet of `size` bytes with all headers. No router may fragment the packet.
function sized(address: string, size?: number): string[] {
  return size === undefined ? [] : ['-M', 'do', '-s', String(size - (address.includes(':') ? 48 : 28))]
}

function wayOf({ name, node }: PodHome): Way {
  return { ns: name, node }
}

// The answers of routers.
function said(stdout: string): string {
  return [...new Set(stdout.match(/^From .*$/gm))].join(', ')
}
