import { type Answerer, question, Unreachable } from '../os/ask.ts'
import { NFT } from '../os/batch-tools.ts'
import { forgetAddresses } from '../os/conntrack.ts'
import { sleep } from '../os/door.ts'
import { has } from '../os/exec.ts'
import { log } from '../os/log.ts'
import { isThere, setNames } from '../os/nftables.ts'
import type { Run } from '../os/run.ts'
import type { Admission } from '../state/kinds/admission.ts'
import { isSix } from '../text/cidr.ts'
import { CniError, CODE } from '../text/errors.ts'
import { bits128, type Ip } from '../text/ip.ts'

/** The default socket of the agent for questions about policy. */
export const SOCKET = '/run/plumb/policy.sock'
/** The nft table of the agent's policies. Its maps lead from the address of a pod to the chain of its policies. */
const TABLE = 'inet plumb_policy'
/** The nft tables of the agent that bind the link of a pod to the pod's addresses (agent/policy/guard.ts). */
const GUARDS = ['inet', 'bridge'] as const

/** The agent sends a sign of life every 2 s. */
const QUIET_MS = 5000
/** How often a call asks again while the agent is away. */
const AGAIN_MS = 50
/** The maps of an address, without the family. */
const SIDES = ['ingress', 'egress'] as const

/**
 * Asks the agent to admit a pod. Sends the question at once, and gives the function that waits until the kernel has the
 * pod's policies. Without an answer, `whenAway` decides: the pod is closed here and the ADD goes on, or the ADD fails
 * after the wait. The function throws CniError 11 then, and when the pod cannot be closed.
 */
export function admit(one: Admission, run: Run): () => Promise<void> {
  const { endpoint, waitMs, whenAway } = one
  const end = performance.now() + waitMs
  const ask = () => {
    const leftMs = Math.max(0, Math.round(end - performance.now()))
    return attempted(() => question(agentAt(one.socket), { command: 'admit', ...endpoint, waitMs: leftMs }, QUIET_MS))
  }
  let asked: (() => object) | undefined = ask()
  return async () => {
    for (; ; sleep(AGAIN_MS)) {
      try {
        ;(asked ?? ask())()
        return
      } catch (cause) {
        if (!(cause instanceof CniError) || cause.code !== CODE.tryLater) throw cause
        if (whenAway === 'closed') return closePod(one, cause, run)
        if (!(cause instanceof Unreachable) || performance.now() >= end) throw cause
      }
      asked = undefined
    }
  }
}

/**
 * Tells the agent that a pod is gone. Sends this at once, and gives the function that waits for the kernel. Without an
 * answer, the addresses are taken out of the maps here: another pod may have them a moment later. The function throws
 * CniError 11 when nft fails.
 */
export function release({ socket, endpoint }: Admission, run: Run): () => Promise<void> {
  const { containerId, ifname } = endpoint
  const asked = attempted(() => question(agentAt(socket), { command: 'release', containerId, ifname }, QUIET_MS))
  return async () => {
    try {
      asked()
    } catch (cause) {
      if (!(cause instanceof CniError)) throw cause
      await takeOut(endpoint, run)
    }
  }
}

/** Asks the agent whether it answers. Throws CniError 11 when it does not. */
export function present(socket: string): void {
  question(agentAt(socket), { command: 'ready' }, QUIET_MS)()
}

// A question that cannot be sent fails where its answer is awaited.
function attempted(send: () => () => object): () => object {
  try {
    return send()
  } catch (cause) {
    return () => {
      throw cause
    }
  }
}

function agentAt(socket: string): Answerer {
  const start = 'it listens with --network-policy; start it: systemctl start plumb-agent'
  const advice = `${start}, or set "socket" of the plugin policy to its --policy-socket`
  return { socket, name: 'the agent for network policy', advice }
}

async function closePod({ endpoint }: Admission, why: CniError, run: Run): Promise<void> {
  const { namespace, pod, addresses, containerId } = endpoint
  const name = `pod ${namespace}/${pod}`
  if (!isThere('inet', 'plumb_policy'))
    throw new CniError(
      CODE.tryLater,
      `Cannot close ${name}: the agent has not loaded its policies since the node started`,
      why.message,
      { cause: why },
    )
  const elements = addresses.flatMap((ip) => SIDES.map((side) => ({ map: mapOf(side, ip), ip })))
  const add = ({ map, ip }: (typeof elements)[number]) => `add element ${TABLE} ${map} { ${ip} : drop }`
  const { failed, said } = await attempt(elements.map(add), run)
  const wrong = said.find((text) => !/File exists/.test(text))
  // An element that does not close the pod is that of a former pod with the address. When the agent has come back
  // meanwhile, it finds this element changed, and repairs it.
  const known = elements.filter((_, i) => failed.includes(i))
  const open = wrong === undefined ? await notClosing(known, run) : []
  const rest = known.length === 0 ? [] : elements.filter((one) => !known.includes(one) || open.includes(one))
  const lines = [...open.map(({ map, ip }) => `delete element ${TABLE} ${map} { ${ip} }`), ...rest.map(add)]
  const again = wrong ?? (lines.length === 0 ? undefined : (await attempt(lines, run)).said[0])
  // With the address of another pod it would be that pod.
  const bound = guardElements(endpoint).map((element) => `add element ${element}`)
  const unbound = again ?? (bound.length === 0 ? undefined : (await attempt(bound, run)).said[0])
  if (unbound !== undefined)
    throw new CniError(CODE.tryLater, `Cannot close ${name}: nft: ${unbound}`, why.message, { cause: why })
  // The pod's link was up before. What was sent meanwhile may have begun connections.
  forgetAddresses(addresses)
  log(`plumb: ${name} is closed until the agent knows its policies: ${why.message}`, { container: containerId })
}

// The elements whose verdict is not one of those that close a pod: that of this file, and that of the agent.
async function notClosing<T extends { readonly map: string; readonly ip: Ip }>(
  elements: readonly T[],
  run: Run,
): Promise<readonly T[]> {
  const open: T[] = []
  for (const one of elements) {
    const { stdout } = await run(NFT, `get element ${TABLE} ${one.map} { ${one.ip} }\n`)
    if (!/ : (drop|goto unknown) }/.test(stdout)) open.push(one)
  }
  return open
}

async function takeOut(endpoint: Admission['endpoint'], run: Run): Promise<void> {
  const { addresses } = endpoint
  if (addresses.length === 0 || !has('nft') || !isThere('inet', 'plumb_policy')) return
  const inMaps = addresses.flatMap((ip) => SIDES.map((side) => `${TABLE} ${mapOf(side, ip)} { ${ip} }`))
  const lines = [...inMaps, ...guardElements(endpoint)].map((element) => `delete element ${element}`)
  const { failed, said } = await attempt(lines, run)
  const wrong = said.find((text) => !/No such file or directory/.test(text))
  if (wrong !== undefined)
    throw new CniError(
      CODE.tryLater,
      `Cannot take ${addresses.join(', ')} out of the network policies: nft: ${wrong}`,
      'another pod must not get the address before',
    )
  const rest = lines.filter((_, i) => !failed.includes(i))
  if (failed.length > 0 && rest.length > 0) await attempt(rest, run)
}

// A closed pod sends from its own addresses only, and gets packets for them only.
function guardElements({ link, addresses }: Admission['endpoint']): string[] {
  if (link === undefined) return []
  const owned = addresses.map((ip) => `owners${isSix(ip) ? 6 : 4} { "${link}" . ${ip} }`)
  const targets = addresses.filter(isSix).map((ip) => `targets6 { "${link}" . ${bits128(ip)} }`)
  const elements = [`links { "${link}" }`, `isolated { "${link}" }`, ...owned, ...targets]
  // The table may be that of an earlier version of the agent.
  const isOf = (sets: readonly string[]) => (element: string) => sets.includes(element.split(' ', 1)[0] as string)
  return GUARDS.filter((family) => isThere(family, 'plumb_guard')).flatMap((family) =>
    elements.filter(isOf(setNames(family, 'plumb_guard'))).map((element) => `${family} plumb_guard ${element}`),
  )
}

// One transaction. A refused line makes all of it fail, and nft names every refused line.
async function attempt(
  lines: readonly string[],
  run: Run,
): Promise<{ readonly failed: readonly number[]; readonly said: readonly string[] }> {
  const { status, stderr } = await run(NFT, `${lines.join('\n')}\n`)
  if (status === 0) return { failed: [], said: [] }
  const found = [...stderr.matchAll(/^\/dev\/stdin:(\d+):\S* (.*)$/gm)]
  if (found.length === 0) return { failed: [], said: [stderr.trim() || `ended with status ${status}`] }
  return { failed: found.map(([, line]) => Number(line) - 1), said: found.map(([, , text = '']) => text) }
}

function mapOf(side: (typeof SIDES)[number], ip: Ip): string {
  return `${side}${isSix(ip) ? 6 : 4}`
}
