import { has } from '../../lib/os/exec.ts'
import { log } from '../../lib/os/log.ts'
import { localAddresses } from '../../lib/os/routes.ts'
import type { Run } from '../../lib/os/run.ts'
import { parseIp } from '../../lib/text/ip.ts'
import type { Family, Frontend } from './compile.ts'

// The kernel translates a UDP client as long as it sends, and never looks at the rules again. So a client that began before an endpoint went, or before the first one
// came, would never reach another one. TCP and SCTP clients notice by themselves that their endpoint is gone.

/** A UDP frontend whose clients may be on a wrong way. */
export interface StaleFrontend extends Pick<Frontend, 'kind' | 'family' | 'key'> {
  /** The endpoints that clients may go on to. */
  readonly endpoints: ReadonlySet<string>
}

/** The UDP frontends among changed ones whose clients have to be looked at: an endpoint went, the first one came, or all went. */
export function staleOf(changed: Iterable<{ readonly before: Frontend | undefined; readonly now: Frontend | undefined }>): StaleFrontend[] {
  return [...changed].flatMap(({ before, now }) => {
    const one = now ?? before
    if (!one?.key.includes('udp . ')) return []
    const [had, endpoints] = [endpointsOf(before), endpointsOf(now)]
    const isSameWay = had.size > 0 && [...had].every((endpoint) => endpoints.has(endpoint))
    return isSameWay || (had.size === 0 && endpoints.size === 0) ? [] : [{ kind: one.kind, family: one.family, key: one.key, endpoints }]
  })
}

/** All UDP frontends, for the first look after a start. */
export function allUdp(frontends: Iterable<Frontend>): StaleFrontend[] {
  return [...frontends].flatMap((now) => (now.key.includes('udp . ') ? [{ kind: now.kind, family: now.family, key: now.key, endpoints: endpointsOf(now) }] : []))
}

/**
 * The UDP frontends of an earlier run that nobody serves any more. `elements` are what that run left, as `Elements` names them: `map svc4: 10.96.0.1 . udp . 53`.
 * `served` has the frontends of now, by kind, family and key.
 */
export function formerUdp(elements: readonly string[], served: ReadonlyMap<string, Frontend>): StaleFrontend[] {
  return elements.flatMap((title) => {
    const [, port, family, key = ''] = /^map (port)?svc([46]): (.*udp \. .*)$/.exec(title) ?? []
    const kind = port ? 'port' : 'vip'
    return key === '' || served.has(`${kind}${family} ${key}`) ? [] : [{ kind, family: family === '4' ? 4 : 6, key, endpoints: new Set<string>() }]
  })
}

/**
 * Makes the kernel forget UDP connections to these frontends that do not lead to one of their endpoints. Lists the connections once per family, and deletes each by
 * all of its numbers. Gives the number of deleted connections. Best effort: without the tool conntrack it deletes nothing.
 */
export async function forgetStale(frontends: readonly StaleFrontend[], run: Run): Promise<number> {
  if (frontends.length === 0) return 0
  if (!has('conntrack')) {
    log('agent: conntrack is not installed: UDP clients of a Service may go on to a former endpoint for up to 2 minutes')
    return 0
  }
  const lines: string[] = []
  for (const family of [4, 6] as const) {
    const own = frontends.filter((one) => one.family === family)
    if (own.length === 0) continue
    const { stdout } = await run(['conntrack', '-L', '-f', `ipv${family}`, '-p', 'udp'], '')
    lines.push(...deletions(stdout, family, own, () => localAddresses(family)))
  }
  if (lines.length === 0) return 0
  // conntrack before 1.4.7 reads no commands from its input.
  const { status } = await run(['conntrack', '-R', '-'], `${lines.join('\n')}\n`)
  if (status !== 0) for (const line of lines) await run(['conntrack', ...line.split(' ')], '')
  return lines.length
}

/** The arguments of conntrack that delete the stale ones of listed connections. `local` gives the addresses of the node. Pure. */
export function deletions(listed: string, family: Family, frontends: readonly StaleFrontend[], local: () => ReadonlySet<string>): string[] {
  const vips = new Map(frontends.filter(({ kind }) => kind === 'vip').map((one) => [one.key, one]))
  const ports = new Map(frontends.filter(({ kind }) => kind === 'port').map((one) => [one.key, one]))
  let own: ReadonlySet<string> | undefined
  const isLocal = (ip: string) => {
    own ??= local()
    return own.has(ip) || ip.startsWith('127.')
  }
  const found: string[] = []
  // The first four values are the way there, and the next ones the way back.
  for (const [, src = '', dst = '', sport, dport, back = '', backPort] of listed.matchAll(/ src=(\S+) dst=(\S+) sport=(\d+) dport=(\d+) .*?src=(\S+) dst=\S+ sport=(\d+) /g)) {
    const [from, to] = [parseIp(src), parseIp(dst)]
    const frontend = vips.get(`${to} . udp . ${dport}`) ?? (ports.size > 0 && ports.has(`udp . ${dport}`) && isLocal(to) ? ports.get(`udp . ${dport}`) : undefined)
    if (!frontend || frontend.endpoints.has(`${parseIp(back)} . ${backPort}`)) continue
    found.push(`-D -f ipv${family} -p udp --orig-src ${from} --orig-dst ${to} --orig-port-src ${sport} --orig-port-dst ${dport}`)
  }
  return found
}

function endpointsOf(frontend: Frontend | undefined): Set<string> {
  return new Set(frontend ? [...frontend.cluster, ...frontend.local] : [])
}
