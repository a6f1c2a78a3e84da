import type { Call } from '../cni/call.ts'
import type { NetConf, Plugin } from '../cni/plugin.ts'
import type { Result } from '../cni/result.ts'
import { decode } from '../cni/versions.ts'
import { isThere, readEntry } from '../journal/journal.ts'
import { log } from '../os/log.ts'
import { netnsState } from '../os/netns.ts'
import { CniError, CODE } from '../text/errors.ts'
import type { Owner } from '../text/owner.ts'
import { read, type Shape } from '../text/shape.ts'
import { parse } from '../text/values.ts'

/** Parses the configuration of a call. Logs the notes of the parser. Throws ValueError. */
export function readConf<C extends NetConf>(
  plugin: { readonly conf: Shape<C> } & Pick<Plugin, 'about'>,
  call: Call,
): C {
  const { value, notes } = read(plugin.conf, call.raw)
  for (const note of notes) log(`plumb: ${note}`, { network: call.at.network })
  return value
}

/**
 * Refuses a CNI_NETNS that is no pod's namespace, before anything is changed. Throws CniError 8 for plumb's own
 * namespace (CNI_NETNS_OVERRIDE=1 allows it, as in skel), 3 for a missing one, 4 for a file that is no namespace.
 */
export function requirePod({ at, io }: Call): void {
  const { netns } = at
  if (netns === undefined) return
  const state = netnsState(netns)
  if (state === 'gone')
    throw new CniError(
      CODE.unknownContainer,
      `Cannot open the network namespace ${netns}: no such file`,
      'the container is gone, or CNI_NETNS names the wrong path',
    )
  if (state === 'other') throw new CniError(CODE.env, `Cannot use CNI_NETNS ${netns}: it is not a network namespace`)
  if (state === 'own') refuseOwn(io.env, netns)
}

/**
 * The call for a DEL. A missing or wrong namespace is left out, because the objects on the node must go also without it
 * (CNI spec 1.1.0 DEL). Throws CniError 8 for plumb's own namespace, unless the journal knows that the pod had another.
 */
export function forDel(call: Call): Call {
  const { netns, ...named } = call.at
  const state = netns === undefined ? 'gone' : netnsState(netns)
  if (state === 'own' && isLeft(call.at)) return { ...call, at: named }
  if (state === 'own') refuseOwn(call.io.env, netns as string)
  return state === 'pod' || state === 'own' ? call : { ...call, at: named }
}

// The path belonged to the pod's namespace at ADD, and leads elsewhere now: /proc/PID/ns/net of a number that was used
// again.
function isLeft(at: Call['at']): boolean {
  const parts = Object.values(readEntry(at)?.parts ?? {})
  return parts.length > 0 && parts.every((part) => part.netns !== at.netns || !isThere(part))
}

// Throws CniError 8 for plumb's own namespace, unless CNI_NETNS_OVERRIDE allows it.
function refuseOwn(env: Call['io']['env'], netns: string): void {
  if (/^(1|true)$/i.test(env['CNI_NETNS_OVERRIDE'] ?? '')) return
  throw new CniError(
    CODE.netns,
    `Cannot use CNI_NETNS ${netns}: it is the namespace that plumb itself runs in`,
    'a pod needs one of its own; CNI_NETNS_OVERRIDE=1 lets it pass',
  )
}

/** prevResult of a call. Throws CniError 7 when there is none. */
export function requirePrevious({ command, raw, version }: Call): Result {
  const given = Object.entries(raw).find(([key]) => key.toLowerCase() === 'prevresult')?.[1]
  if (given === undefined || given === null)
    throw new CniError(
      CODE.config,
      'Required prevResult missing',
      command === 'CHECK'
        ? 'CHECK needs the result that ADD gave'
        : 'a chained plugin adds to what another made: want it after that one in a list of "plugins"',
    )
  return decode(given, version)
}

/**
 * The attachments that GC must keep (CNI spec 1.1.0 GC: `cni.dev/valid-attachments`). Undefined when the runtime sent
 * no list. Then GC removes nothing. Throws ValueError for a list that cannot be read.
 */
export function validAttachments({ raw, at }: Call): Owner[] | undefined {
  const given = raw['cni.dev/valid-attachments'] ?? raw['cni.dev/attachments']
  if (given === undefined || given === null) {
    log('plumb: GC without "cni.dev/valid-attachments" frees nothing', { network: at.network })
    return undefined
  }
  if (!Array.isArray(given))
    throw new CniError(CODE.config, 'Cannot read cni.dev/valid-attachments: want a list of {"containerID", "ifname"}')
  return given.map((item: unknown, i) => {
    const entry = Object.fromEntries(Object.entries(item ?? {}).map(([key, value]) => [key.toLowerCase(), value]))
    try {
      return {
        network: at.network,
        containerId: parse.containerId(entry['containerid'] ?? ''),
        ifname: parse.ifname(entry['ifname'] ?? ''),
      }
    } catch (cause) {
      throw new CniError(CODE.config, `Cannot read cni.dev/valid-attachments[${i}] ${(cause as Error).message}`, '', {
        cause,
      })
    }
  })
}

/**
 * Throws the errors of a GC that went on after failures: a single error as it is, several in one CniError. Does nothing
 * without errors.
 */
export function throwAll(failures: readonly Error[], { at }: Call): void {
  const [first, ...more] = failures
  if (more.length > 0)
    throw new CniError(
      CODE.internal,
      `GC of network ${at.network} failed in ${failures.length} places`,
      failures.map(({ message }) => message).join('; '),
    )
  if (first) throw first
}
