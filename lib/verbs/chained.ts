import type { Call, Done, Verbs } from '../cni/call.ts'
import type { ChainedPlugin, NetConf, NodeFacts, Wiring } from '../cni/plugin.ts'
import type { Result } from '../cni/result.ts'
import { encode } from '../cni/versions.ts'
import { entries, isThere, note, partName, readPart, ready } from '../journal/journal.ts'
import { following, holds, isElsewhere } from '../journal/ports.ts'
import { BLIND } from '../os/batch-tools.ts'
import { log } from '../os/log.ts'
import { inodeOf } from '../os/netns.ts'
import { takeTurn } from '../os/turns.ts'
import { apply, gradually } from '../state/apply.ts'
import { withSettings } from '../state/bridge-ports.ts'
import { type Claim, isClaim } from '../state/kinds/claim.ts'
import { differences } from '../state/observe.ts'
import type { Plan } from '../state/resource.ts'
import { CniError, CODE } from '../text/errors.ts'
import type { PartName } from '../text/owner.ts'
import { readLoose } from '../text/shape.ts'
import { nodeFacts } from '../wiring/node-facts.ts'
import { forDel, readConf, requirePod, requirePrevious, throwAll, validAttachments } from './call.ts'
import { hasOurs, logTheirs } from './foreign.ts'
import { dropNoted, outdated, podOf, reachable, reserve } from './journal-parts.ts'
import { removeFormerOwner } from './orphans.ts'

/**
 * The verbs of a plugin that adds to the objects of the plugins before it. ADD writes its resources to the journal
 * before it makes them. DEL and GC need only the journal.
 */
export function chained<C extends NetConf>(plugin: ChainedPlugin<C>): Verbs {
  return {
    add: (call) => add(plugin, call),
    check: (call) => check(plugin, call),
    async del(call) {
      const { at } = forDel(call)
      const found = await dropNoted([partName(plugin.type, at)], call.io.run)
      if (found.length === 0) await plugin.unwireForeign?.(readLoose(plugin.conf, call.raw), at, call.io.run)
    },
    gc: (call) => gc(plugin, call),
    async status(call) {
      const conf = readConf(plugin, call)
      ready()
      await plugin.status?.(conf, call.io.run)
    },
  }
}

async function add<C extends NetConf>(plugin: ChainedPlugin<C>, call: Call): Promise<Done> {
  const { at, io } = call
  const conf = readConf(plugin, call)
  for (const tool of plugin.tools?.(conf) ?? []) io.run.prepare?.(tool)
  plugin.judge?.(call.text)
  requirePod(call)
  const given = requirePrevious(call)
  for (const remark of plugin.notes?.(conf) ?? []) log(`plumb: ${remark}`, { network: at.network })
  const planned = (node: NodeFacts) => {
    const wiring = plugin.wire(conf, at, given, node)
    return { ...wiring, text: encode(wiring.result, call.version) }
  }
  // This call throws for everything that must be refused. Nothing is changed yet.
  const early = planned(nodeFacts)
  const part = partName(plugin.type, at)
  begin(part, plugin, call)
  const { shared, own, text } = plugin.look ? planned(facts(plugin, conf, call, given)) : early
  const noted = readPart(part)
  // A repeated ADD with the same resources, or an ADD after a kill -9. It completes the earlier ones and removes none.
  const isAgain = noted !== undefined && isThere(noted) && JSON.stringify(noted.own) === JSON.stringify(own)
  if (noted && !isAgain && noted.own.some(isClaim)) await dropNoted([part], io.run)
  // `reachable` leaves out the resources in a pod that is gone, because they went with the pod.
  else if (noted) await apply({ put: [], drop: outdated(reachable(noted, io.run), own) }, io.run)
  if (own.length === 0 && shared.length === 0) return { text }
  // The `ip` process starts up while the journal is written.
  if (own.some(({ kind, ns }) => (kind === 'setting' || kind === 'route') && ns === at.netns))
    io.run.prepare?.(BLIND, at.netns)
  await removeFormerOwner(given.ips ?? [], at, io.run)
  note(at, { [plugin.type]: own }, given.ips, (ports) => withSettings(ports, [...shared, ...own]))
  const undo = async () => void (isAgain || (await dropNoted([part], io.run, true)))
  try {
    await reserve(own, io.run)
    const { links, rest } = making({ shared, own }, holds)
    // The changes to links run at the same time as the rest.
    const onLinks = gradually(links, io.run)
    onLinks.ahead()
    await apply(rest, io.run)
    await onLinks.finish()
    return { text, undo }
  } catch (cause) {
    await undo().catch((lost: Error) =>
      log(`plumb: Cannot undo a failed ADD, the next ADD or DEL will: ${lost.message}`, { container: at.containerId }),
    )
    throw cause
  }
}

async function check<C extends NetConf>(plugin: ChainedPlugin<C>, call: Call): Promise<void> {
  const conf = readConf(plugin, call)
  requirePod(call)
  const given = requirePrevious(call)
  const { shared, own } = plugin.wire(conf, call.at, given, facts(plugin, conf, call, given))
  const wrong = await differences([...shared, ...following(own, (claim) => !isElsewhere(claim))], call.io.run)
  if (wrong.length === 0) return
  const theirs = readPart(partName(plugin.type, call.at))
    ? undefined
    : await plugin.checkForeign?.(conf, call.at, given, call.io.run)
  if (theirs?.length === 0) return logTheirs(plugin.type, call.at)
  const missing = theirs && !hasOurs(call.at, given) ? theirs : [...wrong, ...(theirs ?? [])]
  throw new CniError(
    CODE.internal,
    `Cannot confirm what ${plugin.type} made for container ${call.at.containerId}: ${missing[0]}`,
    missing.join('; '),
  )
}

async function gc<C extends NetConf>(plugin: ChainedPlugin<C>, call: Call): Promise<void> {
  const { at, io } = call
  const conf = readConf(plugin, call)
  const valid = validAttachments(call)
  if (!valid) return
  const failures: Error[] = []
  const attempt = (work: Promise<unknown> | undefined) => work?.catch((cause: Error) => void failures.push(cause))
  for (const { owner } of entries(at.network, valid)) await attempt(dropNoted([partName(plugin.type, owner)], io.run))
  if (valid.length === 0) await attempt(plugin.unshare?.(conf, io.run))
  throwAll(failures, call)
}

function begin<C extends NetConf>(part: PartName, plugin: ChainedPlugin<C>, { at }: Call): void {
  takeTurn(part, `an earlier ${plugin.type} for ${at.ifname} of container ${at.containerId}`)
  // `look` reads the pod's settings. No other plugin may change them before the resources that depend on them are made.
  if (plugin.look) takeTurn(podOf(at.netns && inodeOf(at.netns)), `another plugin in ${at.netns}`)
}

/** The facts about the node and the pod that `wire` of a plugin gets. */
export function facts<C extends NetConf>(plugin: ChainedPlugin<C>, conf: C, { at }: Call, given: Result): NodeFacts {
  if (!plugin.look) return nodeFacts
  const noted = readPart(partName(plugin.type, at))
  const before = plugin.look(conf, at, given, noted && noted.netns === at.netns && isThere(noted) ? noted.own : [])
  // `nodeFacts` is the prototype, so its getters read a fact of the node only when `wire` uses the fact.
  return Object.create(nodeFacts, { before: { value: before } })
}

/**
 * The plans that ADD applies after its claims are decided: the links, and the rest. The process for the links gets its
 * input first. `stands` tells whether the attachment has a claim. Pure.
 */
export function making(
  { shared, own }: Pick<Wiring, 'shared' | 'own'>,
  stands: (claim: Claim) => boolean,
): { readonly links: Plan; readonly rest: Plan } {
  const links = shared.filter(({ kind }) => kind === 'link')
  return {
    links: { put: links, drop: [] },
    rest: {
      put: [...shared.filter((one) => !links.includes(one)), ...following(own, stands).filter((one) => !isClaim(one))],
      drop: [],
    },
  }
}
